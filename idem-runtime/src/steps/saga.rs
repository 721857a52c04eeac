use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::claim::{Claimed, Intent, Look, begin, claim, failed, look, saga_id, transaction};
use super::context::Results;
use super::definition::{Definition, Steps};
use super::error::{SagaError, kept_text};
use super::runner::{Broken, Runner, changed, results};
use super::sql::{Held, SagaDialect};
use super::state::{Rest, SagaRow, SagaState, StepRow};
use super::status::{SagaStatus, complete, failure, unfinished};
use super::worker::Worker;
use crate::engine::{Backoff, run_to_end};
use crate::error::{Error, ErrorKind};
use crate::fingerprint::{Fingerprint, FingerprintBuilder};
use crate::key::{KeyBuilder, RecordId};
use crate::outcome::{self, CodecId, Outcome};
use crate::protocol::Owner;

/// A saga that is declared and bound to a database: started, cancelled, asked after by key.
///
/// Cheap to clone.
pub struct Saga<D: SagaDialect, I, C = ()> {
    pub(super) definition: Arc<Definition<D, I, C>>,
}

impl<D: SagaDialect, I, C> Clone for Saga<D, I, C> {
    fn clone(&self) -> Self {
        Self {
            definition: Arc::clone(&self.definition),
        }
    }
}

/// What was found under a key.
struct Seen {
    saga: SagaRow,
    steps: Vec<StepRow>,
}

impl<D, I, C> Saga<D, I, C>
where
    D: SagaDialect,
    I: Outcome + Send + Sync + 'static,
    C: Clone + Send + Sync + 'static,
{
    pub(super) fn new(steps: Steps<D, I, C>, pool: sqlx::Pool<D>) -> Self {
        Self {
            definition: Arc::new(Definition {
                name: steps.name,
                context: steps.context,
                steps: steps.steps,
                accepted: steps.accepted,
                table: steps.table,
                settings: steps.settings,
                pool,
            }),
        }
    }

    /// Runs the saga to its end, once for each key: a repeat gets the recorded results, or the
    /// recorded failure, or waits for the one that runs. What an earlier process left is run on here
    /// once its lease is over.
    ///
    /// Its statements are committed as it goes along, on connections of its own: a transaction of the
    /// caller's is no part of it.
    ///
    /// # Errors
    /// [`SagaError::Compensated`]: a step failed for good, or it was cancelled, before it began
    /// perhaps. [`SagaError::Waiting`], [`SagaError::Stuck`]: it has not ended.
    /// [`SagaError::StepsChanged`]. Errors of the framework: [`ErrorKind::FingerprintMismatch`]
    /// (another input), [`ErrorKind::InProgress`], [`ErrorKind::StoreUnavailable`],
    /// [`ErrorKind::CommitUnknown`], [`ErrorKind::OutcomeNotRecordable`] (the input), and of the key.
    ///
    /// # Cancel safety
    /// Dropped, it stops at once. A transactional step is rolled back, the effect of an outside one is
    /// unknown; a worker, or the next call with this key, goes on when the lease is over.
    pub async fn start(&self, key: &str, input: &I) -> Result<Results, SagaError> {
        let key = key_text(key)?;
        let (fingerprint, encoded) = payload(input)?;
        let id = saga_id(self.definition.name, &key);
        let mut pauses = self.pauses();
        loop {
            let owner = *Owner::fresh().as_bytes();
            let Some(seen) = self.see(id).await? else {
                let since = Instant::now();
                let begun = Some((fingerprint, encoded.clone()));
                begin(&self.definition, &key, owner, begun).await?;
                let seen = self.see(id).await?.filter(|seen| seen.saga.owner == owner);
                if let Some(seen) = seen {
                    let held = held(id, &seen.saga);
                    match self.run(held, seen, since).await {
                        Err(Broken::Lost) => {}
                        Err(Broken::Saga(error)) => return Err(error),
                        Ok(results) => return Ok(results),
                    }
                }
                continue;
            };
            if !Fingerprint::from_bytes(seen.saga.fingerprint).matches(fingerprint) {
                let error = Error::new(ErrorKind::FingerprintMismatch);
                return Err(self.at(error, &key, id).into());
            }
            match look(&seen.saga, Intent::Resume) {
                Look::Claim { .. } => {
                    if let Some(ended) = self.resume(id).await {
                        return ended;
                    }
                }
                Look::Busy => {}
                _ => return answer(&seen),
            }
            // Somebody else is at it, or was faster.
            match pauses.next() {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(self.in_progress(&key, id).into()),
            }
        }
    }

    /// Runs on what is due; `None` if somebody else does, or does so by now.
    pub(super) async fn resume(&self, id: RecordId) -> Option<Result<Results, SagaError>> {
        let owner = *Owner::fresh().as_bytes();
        let since = Instant::now();
        match claim(&self.definition, id, owner, Intent::Resume).await {
            Ok(Claimed::Ours(held, saga, steps)) => {
                match self.run(held, Seen { saga, steps }, since).await {
                    Ok(results) => Some(Ok(results)),
                    Err(Broken::Saga(error)) => Some(Err(error)),
                    Err(Broken::Lost) => None,
                }
            }
            Ok(Claimed::Changed(stored)) => Some(Err(changed(&self.definition, &stored))),
            Ok(Claimed::Not(..) | Claimed::Locked | Claimed::Absent) => None,
            Err(error) => Some(Err(error.into())),
        }
    }

    /// Cancels the saga: whoever runs it is fenced off, so that nothing of a late step is recorded and
    /// a late transactional step is rolled back, and what was done is undone. Where nothing is known of
    /// the key, that it is cancelled is recorded, and a later start is refused.
    ///
    /// `Ok`: no effect remains. Cancelling again is the same again.
    ///
    /// # Errors
    /// [`SagaError::Completed`]: it has completed and stays so. Otherwise as [`start`](Self::start):
    /// the compensation waits or is stuck, and the saga counts as cancelled all the same.
    ///
    /// # Cancel safety
    /// Once it is recorded as cancelled, a worker goes on.
    pub async fn cancel(&self, key: &str) -> Result<(), SagaError> {
        let key = key_text(key)?;
        let id = saga_id(self.definition.name, &key);
        let mut pauses = self.pauses();
        loop {
            let owner = *Owner::fresh().as_bytes();
            let since = Instant::now();
            match claim(&self.definition, id, owner, Intent::Cancel).await? {
                Claimed::Absent => {
                    begin(&self.definition, &key, owner, None).await?;
                    continue;
                }
                Claimed::Ours(held, saga, steps) => {
                    match self.run(held, Seen { saga, steps }, since).await {
                        Err(Broken::Saga(SagaError::Compensated(_))) => return Ok(()),
                        Err(Broken::Saga(error)) => return Err(error),
                        Ok(_) | Err(Broken::Lost) => {}
                    }
                }
                Claimed::Changed(stored) => return Err(changed(&self.definition, &stored)),
                Claimed::Not(Look::Ended(SagaState::Completed), ..) => {
                    return Err(SagaError::Completed);
                }
                Claimed::Not(Look::Ended(_), ..) => return Ok(()),
                Claimed::Not(Look::Resting(_), saga, steps) => {
                    return answer(&Seen { saga, steps }).map(|_: Results| ());
                }
                Claimed::Not(..) | Claimed::Locked => {}
            }
            match pauses.next() {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(self.in_progress(&key, id).into()),
            }
        }
    }

    /// Where the saga with this key stands, without running anything.
    ///
    /// # Errors
    /// The database cannot be used, or the key is none.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn status(&self, key: &str) -> Result<Option<SagaStatus>, Error> {
        let definition = &self.definition;
        let table = &definition.table;
        table.status(&definition.pool, definition.name, key).await
    }

    /// Lets a stuck saga be tried again: it is due at once, and its attempts are counted anew. `false`:
    /// it is not stuck.
    ///
    /// # Errors
    /// The database cannot be used, or the key is none.
    ///
    /// # Cancel safety
    /// It may be done.
    pub async fn retry_stuck(&self, key: &str) -> Result<bool, Error> {
        let id = saga_id(self.definition.name, &key_text(key)?);
        let texts = self.definition.table.texts::<D>();
        let retry = async {
            let mut tx = transaction(&self.definition.pool).await?;
            let was_stuck = D::unstick_saga(&mut tx, texts, id).await? == 1;
            if was_stuck {
                D::recount_attempts(&mut tx, texts, id).await?;
            }
            tx.commit().await?;
            Ok(was_stuck)
        };
        retry.await.map_err(failed::<D>)
    }

    /// Somebody has undone the stuck step by hand: it counts as compensated, and the saga goes on with
    /// the steps before it. `note` says who and how; it is kept with the step. `false`: the saga is not
    /// stuck in the compensation of this step.
    ///
    /// # Errors
    /// The database cannot be used, or the key is none.
    ///
    /// # Cancel safety
    /// It may be done.
    pub async fn resolve_undone(&self, key: &str, step: &str, note: &str) -> Result<bool, Error> {
        let id = saga_id(self.definition.name, &key_text(key)?);
        let resolve = self.try_resolve(id, step, note);
        resolve.await.map_err(failed::<D>)
    }

    async fn try_resolve(&self, id: RecordId, step: &str, note: &str) -> Result<bool, sqlx::Error> {
        use super::state::StepState::{Compensated, CompensationFailed};
        let texts = self.definition.table.texts::<D>();
        let mut tx = transaction(&self.definition.pool).await?;
        let saga = D::read_saga(&mut tx, texts, id, true).await?;
        let is_stuck = |saga: &SagaRow| {
            saga.rest == Some(Rest::Stuck) && saga.state == SagaState::Compensating
        };
        let steps = D::read_steps(&mut tx, texts, id).await?;
        let row = steps
            .into_iter()
            .find(|row| row.state == CompensationFailed && super::list::base(&row.name) == step);
        let (Some(_), Some(mut row)) = (saga.filter(is_stuck), row) else {
            tx.rollback().await?;
            return Ok(false);
        };
        row.state = Compensated;
        let before = row.error.take().unwrap_or_default();
        row.error = Some(kept_text(&format!("{before} (undone by hand: {note})")));
        D::write_step(&mut tx, texts, id, &row).await?;
        D::unstick_saga(&mut tx, texts, id).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// A worker that runs on what other processes have left.
    #[must_use]
    pub fn worker(&self) -> Worker<D, I, C> {
        Worker::new(self.clone())
    }

    async fn run(&self, held: Held, seen: Seen, since: Instant) -> Result<Results, Broken> {
        let Seen { saga, steps } = seen;
        let runner = Runner::new(&self.definition, held, saga, steps, since).await?;
        runner.run().await
    }

    async fn see(&self, id: RecordId) -> Result<Option<Seen>, Error> {
        let definition = Arc::clone(&self.definition);
        let read = run_to_end(async move {
            let texts = definition.table.texts::<D>();
            let mut conn = definition.pool.acquire().await?;
            let Some(saga) = D::read_saga(&mut conn, texts, id, false).await? else {
                return Ok(None);
            };
            let steps = D::read_steps(&mut conn, texts, id).await?;
            let steps = complete(&saga.steps, steps);
            Ok(Some(Seen { saga, steps }))
        });
        read.await.map_err(failed::<D>)
    }

    fn pauses(&self) -> Backoff {
        Backoff::new(
            Some(self.definition.settings.wait),
            Duration::from_millis(5),
            Duration::from_millis(200),
        )
    }

    fn in_progress(&self, key: &str, id: RecordId) -> Error {
        self.at(Error::new(ErrorKind::InProgress), key, id)
    }

    fn at(&self, error: Error, key: &str, id: RecordId) -> Error {
        error.at(self.definition.name, Some(key), false, id)
    }
}

fn held(id: RecordId, saga: &SagaRow) -> Held {
    Held {
        id,
        owner: saga.owner,
        fence: saga.fence,
    }
}

/// What a saga that nobody runs answers.
fn answer(seen: &Seen) -> Result<Results, SagaError> {
    let Seen { saga, steps } = seen;
    match (saga.state, saga.rest) {
        (SagaState::Completed, _) => Ok(results(steps)),
        (SagaState::Compensated, _) => Err(SagaError::Compensated(failure(saga))),
        (_, Some(Rest::Stuck)) => Err(SagaError::Stuck(unfinished(saga, steps))),
        _ => Err(SagaError::Waiting(unfinished(saga, steps))),
    }
}

/// The key's canonical text, as it is stored.
pub(super) fn key_text(key: &str) -> Result<String, Error> {
    let mut text = KeyBuilder::new("");
    text.part(key);
    Ok(text.finish()?.as_str().to_owned())
}

fn payload<I: Outcome>(input: &I) -> Result<(Fingerprint, Bytes), Error> {
    let mut fingerprint = FingerprintBuilder::new();
    fingerprint.part(input);
    let encoded = outcome::encode_ok(input, CodecId::Json, 0, None)?;
    Ok((fingerprint.finish()?, encoded))
}

impl<D: SagaDialect, I, C> fmt::Debug for Saga<D, I, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saga")
            .field("name", &self.definition.name)
            .field("steps", &self.definition.list())
            .finish_non_exhaustive()
    }
}
