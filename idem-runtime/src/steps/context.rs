//! What a step is run with, and what it leaves.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use sqlx::Transaction;
use tokio::sync::OwnedMutexGuard;

use super::list::base;
use super::sql::SagaDialect;
use crate::error::{Error, ErrorKind};
use crate::key::RecordId;
use crate::outcome;
use crate::protocol::Fence;

/// The recorded results of a saga's steps.
#[derive(Clone, Default)]
#[must_use = "the results are the saga's answer"]
pub struct Results(pub(super) Arc<Vec<(String, Bytes)>>);

impl Results {
    /// The result of a step, by its name.
    ///
    /// # Errors
    /// [`ErrorKind::UnknownStep`]: there is no result of that name. [`ErrorKind::OutcomeUndecodable`]:
    /// it does not read as `R`.
    pub fn get<R: DeserializeOwned>(&self, step: &str) -> Result<R, Error> {
        let found = self.0.iter().find(|(name, _)| name == base(step));
        let Some((_, result)) = found else {
            let names: Vec<_> = self.0.iter().map(|(name, _)| name.as_str()).collect();
            return Err(Error::new(ErrorKind::UnknownStep).detail(format!(
                "asked for {step:?}, there is [{}]",
                names.join(", ")
            )));
        };
        outcome::decode_ok(result)
    }
}

impl fmt::Debug for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|(name, _)| name);
        f.debug_set().entries(names).finish()
    }
}

/// What a step, or a compensation, is run with.
pub struct Step<I, C = ()> {
    pub(super) saga: Arc<Life<I, C>>,
    pub(super) earlier: Results,
    pub(super) idempotency_key: RecordId,
    pub(super) fence: Fence,
    pub(super) attempt: u32,
    pub(super) left_alone: Arc<AtomicBool>,
}

/// What stays the same from step to step.
pub(super) struct Life<I, C> {
    pub(super) key: String,
    pub(super) input: I,
    pub(super) context: C,
}

impl<I, C> Step<I, C> {
    /// What the saga was started with.
    #[must_use]
    pub fn input(&self) -> &I {
        &self.saga.input
    }

    /// What the definition was made with: clients, configuration.
    #[must_use]
    pub fn context(&self) -> &C {
        &self.saga.context
    }

    /// The recorded result of an earlier step.
    ///
    /// # Errors
    /// As [`Results::get`].
    pub fn result<R: DeserializeOwned>(&self, step: &str) -> Result<R, Error> {
        self.earlier.get(step)
    }

    /// The saga's key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.saga.key
    }

    /// The idempotency key for the other side: 32 hexadecimal digits, the same in every attempt of
    /// this step of this saga, in every process, and another one for its compensation.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        self.idempotency_key.to_string()
    }

    /// Higher in every later run of the saga. Hand it to the other side, and let it refuse a lower
    /// one: only it can keep a late attempt out.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Says that the effect was there before this saga: the call that the step makes was answered from
    /// an earlier one that is somebody else's. The step is done when it returns its result, and is not
    /// undone. Without this a step that is done counts as this saga's, and is. A question
    /// ([`outside_with_ask`](super::Steps::outside_with_ask)) that finds such an effect says so too.
    pub fn skip_compensation(&self) {
        self.left_alone.store(true, Ordering::SeqCst);
    }

    /// Which attempt this is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

impl<I, C> fmt::Debug for Step<I, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step")
            .field("fence", &self.fence)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// What a transactional step, or its compensation, is run with: the transaction that commits its
/// effects and its record together.
///
/// Do not end the transaction inside, and do not swallow an error of the database that ended it.
pub struct StepTx<D: SagaDialect, I, C = ()> {
    pub(super) tx: OwnedMutexGuard<Transaction<'static, D>>,
    pub(super) step: Step<I, C>,
}

impl<D: SagaDialect, I, C> StepTx<D, I, C> {
    /// The transaction.
    pub fn tx(&mut self) -> &mut Transaction<'static, D> {
        &mut self.tx
    }

    /// The rest and the transaction, borrowed apart: for a statement that binds the input.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # mod example {
    /// # use idem_runtime::steps::{StepError, StepTx};
    /// # pub struct Customer { name: String }
    /// async fn register(mut step: StepTx<sqlx::Sqlite, Customer>) -> Result<i64, StepError> {
    ///     let (step, tx) = step.split();
    ///     let insert = "INSERT INTO customer (name) VALUES (?) RETURNING id";
    ///     let id = sqlx::query_scalar(insert).bind(&step.input().name);
    ///     Ok(id.fetch_one(&mut **tx).await?)
    /// }
    /// # }
    /// ```
    pub fn split(&mut self) -> (&Step<I, C>, &mut Transaction<'static, D>) {
        (&self.step, &mut self.tx)
    }
}

impl<D: SagaDialect, I, C> Deref for StepTx<D, I, C> {
    type Target = Step<I, C>;

    fn deref(&self) -> &Self::Target {
        &self.step
    }
}

impl<D: SagaDialect, I, C> fmt::Debug for StepTx<D, I, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StepTx").field(&self.step).finish()
    }
}

/// What the compensation of an outside step is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a compensation that forgets one of the two is the mistake this type is for"
)]
pub enum Undo<R> {
    /// The step is done, with this result.
    Done(R),
    /// Nobody knows whether the step had its effect: undo it if it is there, and keep a late attempt
    /// out if you can. That there is nothing to undo is a success.
    Unknown,
}
