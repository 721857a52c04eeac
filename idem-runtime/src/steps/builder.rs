//! A saga as it is declared.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

use bytes::Bytes;
use sqlx::Pool;

use super::context::{Step, StepTx, Undo};
use super::definition::{Ask, Body, Defined, Run, RunTx, Settings, UndoOutside, UndoTx};
use super::error::{DefinitionError, StepError};
use super::list::{base, check, check_name};
use super::options::StepOptions;
use super::retries::Retries;
use super::saga::Saga;
use super::sql::{SagaDialect, SagaTable};
use crate::operation::KeyText;
use crate::outcome::{self, CodecId, Outcome};

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
///     let (step, tx) = step.split();
///     let row = sqlx::query("INSERT INTO reservation (order_no) VALUES (?)").bind(step.input().no);
///     Ok(row.execute(&mut **tx).await?.last_insert_rowid())
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
///     post("/charges", &step.idempotency_key(), step.input().cents).await.map_err(StepError::retry)
/// }
///
/// async fn refund(step: Step<Order>, charge: Undo<String>) -> Result<(), StepError> {
///     let path = match charge {
///         Undo::Done(id) => format!("/charges/{id}/refund"),
///         // Refunds what there is under the order's number, and keeps a late charge out.
///         Undo::Unknown => format!("/orders/{}/void", step.input().no),
///     };
///     post(&path, &step.idempotency_key(), 0).await.map_err(StepError::retry)?;
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
    pub(super) name: String,
    pub(super) context: C,
    pub(super) steps: Vec<Defined<D, I, C>>,
    pub(super) accepted: Vec<Vec<String>>,
    configured: Vec<(String, StepOptions)>,
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
    pub fn named(name: impl Into<String>, context: C) -> Self {
        Self {
            name: name.into(),
            context,
            steps: Vec::new(),
            accepted: Vec::new(),
            configured: Vec::new(),
            table: SagaTable::default(),
            settings: Settings::default(),
            input: PhantomData,
        }
    }

    /// A **transactional** step: its effects in the database and its record commit in one transaction,
    /// so that it happens exactly once, and so does its compensation, which gets the recorded result.
    ///
    /// Names are ASCII letters, digits, `_`, `-`, `.`; `charge@2` is the second version of `charge`.
    pub fn step<R, F, Fut, U, UFut>(self, name: impl Into<String>, run: F, undo: U) -> Self
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
    pub fn step_without_undo<R, F, Fut>(self, name: impl Into<String>, run: F) -> Self
    where
        R: Outcome + Send + 'static,
        F: Fn(StepTx<D, I, C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, StepError>> + Send + 'static,
    {
        self.transactional(name, run, None)
    }

    fn transactional<R, F, Fut>(
        self,
        name: impl Into<String>,
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
        self.push(name.into(), Body::Tx { run, undo })
    }

    /// An **outside** step: its effect is elsewhere. It is recorded as started before and as done
    /// after; a crash in between leaves it unknown, and it is run again with the same
    /// [`idempotency_key`](Step::idempotency_key). Its compensation is told by [`Undo`] what is known.
    pub fn outside<R, F, Fut, U, UFut>(self, name: impl Into<String>, run: F, undo: U) -> Self
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
    pub fn outside_without_undo<R, F, Fut>(self, name: impl Into<String>, run: F) -> Self
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
        name: impl Into<String>,
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
        name: impl Into<String>,
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
        self.push(name.into(), Body::Outside { run, ask, undo })
    }

    fn push(mut self, name: String, body: Body<D, I, C>) -> Self {
        self.steps.push(Defined {
            name,
            body,
            options: StepOptions::default(),
        });
        self
    }

    /// How one step and its compensation are run, by the step's name without its version. Called again
    /// for the same step, the last one counts.
    pub fn configure(mut self, step: impl Into<String>, options: StepOptions) -> Self {
        self.configured.push((step.into(), options));
        self
    }

    /// Sagas that were begun under this older list of steps, by their names, are run to their end by that
    /// list: every step of it must be declared here still, whatever its version. Other lists are
    /// [`SagaError::StepsChanged`](super::SagaError::StepsChanged).
    ///
    /// Where a step of it is of another kind now: an outside step that was begun and has no recorded end
    /// is unknown, and a transactional one cannot find out, so that the saga is stuck
    /// ([`Cause::EffectUnknown`](super::Cause::EffectUnknown)); likewise where a step that may have had
    /// its effect has lost its compensation.
    pub fn accepts<S: Into<String>>(mut self, list: impl IntoIterator<Item = S>) -> Self {
        self.accepted
            .push(list.into_iter().map(Into::into).collect());
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

    /// How often steps and compensations are tried again, where [`configure`](Self::configure) does not
    /// say otherwise.
    pub fn retries(mut self, retries: Retries) -> Self {
        self.settings.retries = retries;
        self
    }

    /// How long one attempt of a step or a compensation may take ([`StepOptions::timeout`]), where
    /// [`configure`](Self::configure) does not say otherwise: five minutes unless it is told otherwise.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Whether keys may stand in logs and in the texts of errors. Unless this says so they do not: keys
    /// carry names and card numbers. They are stored with the saga in any case.
    pub fn key_text(mut self, key_text: KeyText) -> Self {
        self.settings.shows_key = key_text == KeyText::Shown;
        self
    }

    /// The saga, kept in this database.
    ///
    /// # Errors
    /// A name that is not valid, no steps, two steps of one name, an accepted list or a configuration
    /// with a step that is not declared, a lease that is shorter than a millisecond or longer than 36500
    /// days, or a time-out of zero.
    pub fn build(mut self, pool: &Pool<D>) -> Result<Saga<D, I, C>, DefinitionError> {
        self.check_names()?;
        for (name, options) in std::mem::take(&mut self.configured) {
            let step = self
                .steps
                .iter_mut()
                .find(|step| base(&step.name) == base(&name));
            let Some(step) = step else {
                return Err(DefinitionError::new(format!(
                    "the step {name:?} is configured and not declared"
                )));
            };
            step.options = options;
        }
        let longest = crate::retention::MAX_RETENTION;
        if self.settings.lease < Duration::from_millis(1) || self.settings.lease > longest {
            return Err(DefinitionError::new(format!(
                "the lease of {:?} is shorter than a millisecond or longer than 36500 days",
                self.settings.lease
            )));
        }
        let timeouts = self.steps.iter().filter_map(|step| step.options.timeout);
        if timeouts
            .chain([self.settings.timeout])
            .any(|timeout| timeout.is_zero())
        {
            return Err(DefinitionError::new("a step's time-out is zero"));
        }
        Ok(Saga::new(self, pool.clone()))
    }

    fn check_names(&self) -> Result<(), DefinitionError> {
        let current: Vec<&str> = self.steps.iter().map(|step| step.name.as_str()).collect();
        check_name(&self.name)?;
        check(&current)?;
        for list in &self.accepted {
            let list: Vec<&str> = list.iter().map(String::as_str).collect();
            check(&list)?;
            let missing = list
                .iter()
                .find(|entry| !current.iter().any(|known| base(known) == base(entry)));
            if let Some(entry) = missing {
                return Err(DefinitionError::new(format!(
                    "the accepted list [{}] has the step {entry:?}, which is not declared",
                    list.join(", ")
                )));
            }
        }
        Ok(())
    }
}

impl<D: SagaDialect, I, C> fmt::Debug for Steps<D, I, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<_> = self.steps.iter().map(|step| &step.name).collect();
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
