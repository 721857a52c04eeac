use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use sqlx::Pool;

use super::context::{Step, StepTx, Undo};
use super::error::StepError;
use super::list::{base, check, check_name, text};
use super::plan::Traits;
use super::retries::Retries;
use super::saga::Saga;
use super::sql::{SagaDialect, SagaTable};
use crate::error::{Error, ErrorKind};
use crate::outcome::{self, CodecId, Outcome};

pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

type RunTx<D, I, C> = Box<dyn Fn(StepTx<D, I, C>) -> Boxed<Result<Bytes, StepError>> + Send + Sync>;
type UndoTx<D, I, C> =
    Box<dyn Fn(StepTx<D, I, C>, &Bytes) -> Boxed<Result<(), StepError>> + Send + Sync>;
type Run<I, C> = Box<dyn Fn(Step<I, C>) -> Boxed<Result<Bytes, StepError>> + Send + Sync>;
type Ask<I, C> = Box<dyn Fn(Step<I, C>) -> Boxed<Result<Option<Bytes>, StepError>> + Send + Sync>;
type UndoOutside<I, C> =
    Box<dyn Fn(Step<I, C>, Option<&Bytes>) -> Boxed<Result<(), StepError>> + Send + Sync>;

/// One step of a definition.
pub(super) struct Defined<D: SagaDialect, I, C> {
    /// As it was declared, with its version.
    pub(super) entry: &'static str,
    pub(super) body: Body<D, I, C>,
}

pub(super) enum Body<D: SagaDialect, I, C> {
    Tx {
        run: RunTx<D, I, C>,
        undo: Option<UndoTx<D, I, C>>,
    },
    Outside {
        run: Run<I, C>,
        ask: Option<Ask<I, C>>,
        undo: Option<UndoOutside<I, C>>,
    },
}

impl<D: SagaDialect, I, C> Body<D, I, C> {
    pub(super) fn traits(&self) -> Traits {
        match self {
            Self::Tx { undo, .. } => Traits {
                outside: false,
                undo: undo.is_some(),
            },
            Self::Outside { undo, .. } => Traits {
                outside: true,
                undo: undo.is_some(),
            },
        }
    }
}

/// How the definition's sagas are run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) lease: Duration,
    pub(super) wait: Duration,
    pub(super) retries: Retries,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            wait: Duration::from_secs(30),
            retries: Retries::default(),
        }
    }
}

/// Declares a saga: its steps in their order, each with what undoes it.
///
/// `D` is the database that keeps the record, `I` the input (stored with the saga, so that any process
/// can go on with it), `C` what the steps need beside it: clients, configuration. All three follow
/// from the functions. A step is an `async fn` or a closure; what it returns is recorded.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # async fn example(pool: sqlx::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
/// use idem_runtime::steps::{SagaError, Step, StepError, StepTx, Steps, Undo};
/// use serde::{Deserialize, Serialize};
/// use sqlx::Sqlite;
///
/// #[derive(Serialize, Deserialize)]
/// struct Order { no: i64, cents: i64 }
///
/// async fn reserve(mut step: StepTx<Sqlite, Order>) -> Result<i64, StepError> {
///     let no = step.input().no;
///     let row = sqlx::query("INSERT INTO reservation (order_no) VALUES (?)").bind(no);
///     Ok(row.execute(&mut **step.tx()).await?.last_insert_rowid())
/// }
///
/// async fn release(mut step: StepTx<Sqlite, Order>, reservation: i64) -> Result<(), StepError> {
///     let gone = sqlx::query("DELETE FROM reservation WHERE rowid = ?").bind(reservation);
///     gone.execute(&mut **step.tx()).await?;
///     Ok(())
/// }
///
/// # async fn post(_: &str, _: &str, _: i64) -> Result<String, std::io::Error> { Ok(String::new()) }
/// async fn charge(step: Step<Order>) -> Result<String, StepError> {
///     post("/charges", &step.outside_key(), step.input().cents).await.map_err(StepError::retry)
/// }
///
/// async fn refund(step: Step<Order>, charge: Undo<String>) -> Result<(), StepError> {
///     let path = match charge {
///         Undo::Done(id) => format!("/charges/{id}/refund"),
///         // Refunds what there is under the order's number, and keeps a late charge out.
///         Undo::Unknown => format!("/orders/{}/void", step.input().no),
///     };
///     post(&path, &step.outside_key(), 0).await.map_err(StepError::retry)?;
///     Ok(())
/// }
///
/// let place = Steps::named("order.place", ())
///     .step("reserve", reserve, release)
///     .outside("charge", charge, refund)
///     .build(&pool)?;
/// let results = place.start("order:7", &Order { no: 7, cents: 990 }).await?;
/// let charge: String = results.get("charge")?;
/// # Ok(()) }
/// ```
#[must_use = "`build` makes it usable"]
pub struct Steps<D: SagaDialect, I, C = ()> {
    pub(super) name: &'static str,
    pub(super) context: C,
    pub(super) steps: Vec<Defined<D, I, C>>,
    pub(super) accepted: Vec<Vec<&'static str>>,
    pub(super) table: SagaTable,
    pub(super) settings: Settings,
    input: PhantomData<fn(I)>,
}

impl<D, I, C> Steps<D, I, C>
where
    D: SagaDialect,
    I: Outcome + Send + Sync + 'static,
    C: Clone + Send + Sync + 'static,
{
    /// A saga without steps yet. The name is part of the identity of its records: ASCII letters,
    /// digits, `_`, `-`, `.`.
    pub fn named(name: &'static str, context: C) -> Self {
        Self {
            name,
            context,
            steps: Vec::new(),
            accepted: Vec::new(),
            table: SagaTable::default(),
            settings: Settings::default(),
            input: PhantomData,
        }
    }

    /// A **transactional** step: its effects in the database and its record commit in one transaction,
    /// so that it happens exactly once, and so does its compensation, which gets the recorded result.
    ///
    /// Names are ASCII letters, digits, `_`, `-`, `.`; `charge@2` is the second version of `charge`.
    pub fn step<R, F, Fut, U, UFut>(self, name: &'static str, run: F, undo: U) -> Self
    where
        R: Outcome + Send + 'static,
        F: Fn(StepTx<D, I, C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, StepError>> + Send + 'static,
        U: Fn(StepTx<D, I, C>, R) -> UFut + Send + Sync + 'static,
        UFut: Future<Output = Result<(), StepError>> + Send + 'static,
    {
        let undo: UndoTx<D, I, C> = Box::new(move |step, result| match decode(result) {
            Ok(result) => Box::pin(undo(step, result)),
            Err(error) => Box::pin(async { Err(error) }),
        });
        self.transactional(name, run, Some(undo))
    }

    /// A transactional step that leaves nothing to undo.
    pub fn step_without_undo<R, F, Fut>(self, name: &'static str, run: F) -> Self
    where
        R: Outcome + Send + 'static,
        F: Fn(StepTx<D, I, C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, StepError>> + Send + 'static,
    {
        self.transactional(name, run, None)
    }

    fn transactional<R, F, Fut>(
        self,
        name: &'static str,
        run: F,
        undo: Option<UndoTx<D, I, C>>,
    ) -> Self
    where
        R: Outcome + Send + 'static,
        F: Fn(StepTx<D, I, C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, StepError>> + Send + 'static,
    {
        let run: RunTx<D, I, C> = Box::new(move |step| {
            let running = run(step);
            Box::pin(async move { encode(&running.await?) })
        });
        self.push(name, Body::Tx { run, undo })
    }

    /// An **outside** step: its effect is elsewhere. It is recorded as started before and as done
    /// after; a crash in between leaves it unknown, and it is run again with the same
    /// [`outside_key`](Step::outside_key). Its compensation is told by [`Undo`] what is known.
    pub fn outside<R, F, Fut, U, UFut>(self, name: &'static str, run: F, undo: U) -> Self
    where
        R: Outcome + Send + 'static,
        F: Fn(Step<I, C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, StepError>> + Send + 'static,
        U: Fn(Step<I, C>, Undo<R>) -> UFut + Send + Sync + 'static,
        UFut: Future<Output = Result<(), StepError>> + Send + 'static,
    {
        self.elsewhere(name, run, None, Some(undo_outside(undo)))
    }

    /// An outside step that leaves nothing to undo.
    pub fn outside_without_undo<R, F, Fut>(self, name: &'static str, run: F) -> Self
    where
        R: Outcome + Send + 'static,
        F: Fn(Step<I, C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, StepError>> + Send + 'static,
    {
        self.elsewhere(name, run, None, None)
    }

    /// An outside step whose other side can be asked. Where its effect is unknown `ask` comes first:
    /// `Some` is its result, `None` says that there is no effect, and it is run (or, in compensation,
    /// undone as [`Undo::Unknown`]: a late attempt may still arrive).
    pub fn outside_with_ask<R, F, Fut, A, AFut, U, UFut>(
        self,
        name: &'static str,
        run: F,
        ask: A,
        undo: U,
    ) -> Self
    where
        R: Outcome + Send + 'static,
        F: Fn(Step<I, C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, StepError>> + Send + 'static,
        A: Fn(Step<I, C>) -> AFut + Send + Sync + 'static,
        AFut: Future<Output = Result<Option<R>, StepError>> + Send + 'static,
        U: Fn(Step<I, C>, Undo<R>) -> UFut + Send + Sync + 'static,
        UFut: Future<Output = Result<(), StepError>> + Send + 'static,
    {
        let ask: Ask<I, C> = Box::new(move |step| {
            let asking = ask(step);
            Box::pin(async move { asking.await?.map(|result| encode(&result)).transpose() })
        });
        self.elsewhere(name, run, Some(ask), Some(undo_outside(undo)))
    }

    fn elsewhere<R, F, Fut>(
        self,
        name: &'static str,
        run: F,
        ask: Option<Ask<I, C>>,
        undo: Option<UndoOutside<I, C>>,
    ) -> Self
    where
        R: Outcome + Send + 'static,
        F: Fn(Step<I, C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, StepError>> + Send + 'static,
    {
        let run: Run<I, C> = Box::new(move |step| {
            let running = run(step);
            Box::pin(async move { encode(&running.await?) })
        });
        self.push(name, Body::Outside { run, ask, undo })
    }

    fn push(mut self, entry: &'static str, body: Body<D, I, C>) -> Self {
        self.steps.push(Defined { entry, body });
        self
    }

    /// Sagas that were begun under this older list of steps are run to their end by that list: every
    /// step of it must be declared here still, whatever its version. Other lists are
    /// [`SagaError::StepsChanged`](super::SagaError::StepsChanged).
    pub fn accepts<const N: usize>(mut self, list: [&'static str; N]) -> Self {
        self.accepted.push(list.to_vec());
        self
    }

    /// The table, if it is not `idem_saga`.
    pub fn table(mut self, table: SagaTable) -> Self {
        self.table = table;
        self
    }

    /// How long a saga belongs to the process that runs it without a sign of life, by the database's
    /// clock: 30 s unless it is told otherwise. It is extended while a step runs.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How long [`Saga::start`] waits for a saga that another call or worker is running: 30 s unless it
    /// is told otherwise.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.settings.wait = wait;
        self
    }

    /// How often steps and compensations are tried again.
    pub fn retries(mut self, retries: Retries) -> Self {
        self.settings.retries = retries;
        self
    }

    /// The saga, kept in this database.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`]: a name that is none, no steps, two steps of one name, or an accepted
    /// list with a step that is not declared. [`ErrorKind::InvalidLease`].
    pub fn build(self, pool: &Pool<D>) -> Result<Saga<D, I, C>, Error> {
        let current: Vec<&str> = self.steps.iter().map(|step| step.entry).collect();
        check_name(self.name)?;
        check(&current)?;
        for list in &self.accepted {
            check(list)?;
            let missing = list
                .iter()
                .find(|entry| !current.iter().any(|known| base(known) == base(entry)));
            if let Some(entry) = missing {
                return Err(Error::new(ErrorKind::Schema).detail(format!(
                    "the accepted list [{}] has the step {entry:?}, which is not declared",
                    text(list.iter().copied())
                )));
            }
        }
        let longest = crate::retention::MAX_RETENTION;
        if self.settings.lease < Duration::from_millis(1) || self.settings.lease > longest {
            return Err(Error::new(ErrorKind::InvalidLease));
        }
        Ok(Saga::new(self, pool.clone()))
    }
}

impl<D: SagaDialect, I, C> fmt::Debug for Steps<D, I, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<_> = self.steps.iter().map(|step| step.entry).collect();
        f.debug_struct("Steps")
            .field("name", &self.name)
            .field("steps", &steps)
            .finish_non_exhaustive()
    }
}

fn undo_outside<I, C, R, U, UFut>(undo: U) -> UndoOutside<I, C>
where
    R: Outcome + Send + 'static,
    U: Fn(Step<I, C>, Undo<R>) -> UFut + Send + Sync + 'static,
    UFut: Future<Output = Result<(), StepError>> + Send + 'static,
{
    Box::new(move |step, result| match result.map(decode).transpose() {
        Ok(Some(result)) => Box::pin(undo(step, Undo::Done(result))),
        Ok(None) => Box::pin(undo(step, Undo::Unknown)),
        Err(error) => Box::pin(async { Err(error) }),
    })
}

/// The encoding whose result is refused if it would not read back as the same value.
fn encode<R: Outcome>(result: &R) -> Result<Bytes, StepError> {
    Ok(outcome::encode_ok(result, CodecId::Json, 0, None)?)
}

fn decode<R: Outcome>(result: &Bytes) -> Result<R, StepError> {
    Ok(outcome::decode_ok(result)?)
}

/// What a definition is when it is built, shared by its handles.
pub(super) struct Definition<D: SagaDialect, I, C> {
    pub(super) name: &'static str,
    pub(super) context: C,
    pub(super) steps: Vec<Defined<D, I, C>>,
    pub(super) accepted: Vec<Vec<&'static str>>,
    pub(super) table: SagaTable,
    pub(super) settings: Settings,
    pub(super) pool: Pool<D>,
}

impl<D: SagaDialect, I, C> Definition<D, I, C> {
    /// The list that new sagas are begun under.
    pub(super) fn list(&self) -> String {
        text(self.steps.iter().map(|step| step.entry))
    }

    /// The positions of the steps of a saga that was begun under this list, in its order; `None` if
    /// the list is not accepted.
    pub(super) fn order(&self, stored: &str) -> Option<Vec<usize>> {
        if stored == self.list() {
            return Some((0..self.steps.len()).collect());
        }
        let list = self
            .accepted
            .iter()
            .find(|list| text(list.iter().copied()) == stored)?;
        let find = |entry: &&str| {
            let mut steps = self.steps.iter();
            steps.position(|step| base(step.entry) == base(entry))
        };
        list.iter().map(find).collect()
    }
}
