//! A saga that is bound to a database, and what its callers do with it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::builder::Steps;
use super::claim::{Claimed, Intent, Look, begin, claim, failed, look, saga_id};
use super::context::Results;
use super::definition::Definition;
use super::error::SagaError;
use super::reference::SagaRef;
use super::runner::{Broken, Runner, changed, results};
use super::sql::{Held, SagaDialect};
use super::state::{Cause, Rest, SagaRow, SagaState, StepRow};
use super::status::{SagaStatus, complete, failure, unfinished};
use super::stop::Stop;
use super::worker::Worker;
use crate::engine::{Backoff, coalesce, run_to_end};
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

impl Seen {
    /// Whether nobody runs it, or is to at this moment.
    fn is_answered(&self) -> bool {
        let look = look(&self.saga, Intent::Resume);
        matches!(look, Look::Resting(_) | Look::Ended(_))
    }
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
    /// Equal calls in one process wait for one of them, and only that one asks the database.
    ///
    /// Its statements are committed as it goes along, on connections of its own: a transaction of the
    /// caller's is no part of it.
    ///
    /// # Errors
    /// [`SagaError::Compensated`]: a step failed for good, or it was cancelled, before it began
    /// perhaps. [`SagaError::Waiting`], [`SagaError::Stuck`]: it has not ended.
    /// [`SagaError::StepsChanged`]. [`SagaError::InputNotRecordable`]. Errors of the framework:
    /// [`ErrorKind::FingerprintMismatch`] (another input), [`ErrorKind::InProgress`],
    /// [`ErrorKind::StoreUnavailable`], [`ErrorKind::CommitUnknown`], and of the key.
    ///
    /// # Cancel safety
    /// Dropped, it stops at once. A transactional step is rolled back, the effect of an outside one is
    /// unknown; a worker, or the next call with this key, goes on when the lease is over.
    pub async fn start(&self, key: &str, input: &I) -> Result<Results, SagaError> {
        let key = key_text(key)?;
        let (fingerprint, encoded) = payload(input)?;
        let id = saga_id(&self.definition.name, &key);
        let mut pauses = self.pauses();
        let (_first, mut known) = self
            .line_up("start", &key, id, fingerprint, &pauses)
            .await?;
        loop {
            let owner = *Owner::fresh().as_bytes();
            let seen = match known.take() {
                Some(seen) => Some(seen),
                None => self.see(id).await?,
            };
            let Some(seen) = seen else {
                let since = Instant::now();
                let begun = Some((fingerprint, encoded.clone()));
                begin(&self.definition, &key, owner, begun).await?;
                let seen = self.see(id).await?.filter(|seen| seen.saga.owner == owner);
                if let Some(seen) = seen {
                    let held = held(id, &seen.saga);
                    match self.run(held, seen, since, Stop::default()).await {
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
                    if let Some(ended) = self.resume(id, Stop::default()).await {
                        return ended;
                    }
                }
                Look::Busy if self.was_put_off(&seen.saga) => {
                    return Err(changed(&self.definition, &seen.saga.steps, &seen.steps));
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
    pub(super) async fn resume(
        &self,
        id: RecordId,
        stop: Stop,
    ) -> Option<Result<Results, SagaError>> {
        let owner = *Owner::fresh().as_bytes();
        let since = Instant::now();
        match claim(&self.definition, id, owner, Intent::Resume).await {
            Ok(Claimed::Ours(held, saga, steps)) => {
                match self.run(held, Seen { saga, steps }, since, stop).await {
                    Ok(results) => Some(Ok(results)),
                    Err(Broken::Saga(error)) => Some(Err(error)),
                    Err(Broken::Lost) => None,
                }
            }
            Ok(Claimed::Changed(saga, steps)) => {
                Some(Err(changed(&self.definition, &saga.steps, &steps)))
            }
            Ok(Claimed::Not(..) | Claimed::Locked | Claimed::Absent) => None,
            Err(error) => Some(Err(error.into())),
        }
    }

    /// Cancels the saga: whoever runs it is fenced off, so that nothing of a late step is recorded and
    /// a late transactional step is rolled back, and what was done is undone. Where nothing is known of
    /// the key, that it is cancelled is recorded, and a later start is refused.
    ///
    /// `Ok`: no effect remains. Cancelling again is the same again. By its id only a saga that is there
    /// can be cancelled.
    ///
    /// # Errors
    /// [`SagaError::Completed`]: it has completed and stays so. Otherwise as [`start`](Self::start):
    /// the compensation waits or is stuck, and the saga counts as cancelled all the same.
    /// [`SagaError::NotFound`]: no saga of this definition has the id.
    ///
    /// # Cancel safety
    /// Once it is recorded as cancelled, a worker goes on.
    pub async fn cancel<'k>(&self, saga: impl Into<SagaRef<'k>> + Send) -> Result<(), SagaError> {
        let saga = saga.into();
        let id = saga.id(&self.definition.name)?;
        let key = match saga {
            SagaRef::Key(key) => Some(key_text(key)?),
            SagaRef::Id(_) => None,
        };
        let mut pauses = self.pauses();
        let text = key.as_deref().unwrap_or_default();
        let _first = self
            .line_up("cancel", text, id, Fingerprint::NONE, &pauses)
            .await?;
        loop {
            let owner = *Owner::fresh().as_bytes();
            let since = Instant::now();
            match claim(&self.definition, id, owner, Intent::Cancel).await? {
                Claimed::Absent => {
                    let Some(key) = &key else {
                        return Err(SagaError::NotFound);
                    };
                    begin(&self.definition, key, owner, None).await?;
                    continue;
                }
                Claimed::Ours(held, saga, steps) => {
                    let seen = Seen { saga, steps };
                    match self.run(held, seen, since, Stop::default()).await {
                        Err(Broken::Saga(SagaError::Compensated(_))) => return Ok(()),
                        Err(Broken::Saga(error)) => return Err(error),
                        Ok(_) | Err(Broken::Lost) => {}
                    }
                }
                Claimed::Changed(saga, steps) => {
                    return Err(changed(&self.definition, &saga.steps, &steps));
                }
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
                None => return Err(self.in_progress(text, id).into()),
            }
        }
    }

    /// Where the saga with this key, or id, stands, without running anything.
    ///
    /// # Errors
    /// The database cannot be used, or the key is not valid.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn status<'k>(
        &self,
        saga: impl Into<SagaRef<'k>> + Send,
    ) -> Result<Option<SagaStatus>, Error> {
        let definition = &self.definition;
        let id = saga.into().id(&definition.name)?;
        definition.table.status_of(&definition.pool, id).await
    }

    /// Lets a stuck saga be tried again: it is due at once, and its attempts are counted anew. `false`:
    /// it is not stuck. Many at once: [`SagaTable::retry_all_stuck`](super::SagaTable::retry_all_stuck).
    ///
    /// # Errors
    /// The database cannot be used, or the key is not valid.
    ///
    /// # Cancel safety
    /// It may be done.
    pub async fn retry_stuck<'k>(
        &self,
        saga: impl Into<SagaRef<'k>> + Send,
    ) -> Result<bool, Error> {
        let definition = &self.definition;
        let id = saga.into().id(&definition.name)?;
        definition.table.retry_stuck(&definition.pool, id).await
    }

    /// Somebody knows that the stuck step is done, and with what result: it counts as done, and the saga
    /// goes on with the step after it. `note` says who and how; it is kept with the step. `false`: the
    /// saga is not stuck at this step.
    ///
    /// The result must be of the type that the step returns.
    ///
    /// # Errors
    /// The database cannot be used, the key is not valid, or the result cannot be recorded.
    ///
    /// # Cancel safety
    /// It may be done.
    pub async fn resolve_done<'k, R: Outcome + Sync>(
        &self,
        saga: impl Into<SagaRef<'k>> + Send,
        step: &str,
        result: &R,
        note: &str,
    ) -> Result<bool, Error> {
        let definition = &self.definition;
        let id = saga.into().id(&definition.name)?;
        let (table, pool) = (&definition.table, &definition.pool);
        table.resolve_done(pool, id, step, result, note).await
    }

    /// Somebody has undone the stuck step by hand: it counts as compensated, and the saga goes on with
    /// the steps before it. `note` says who and how; it is kept with the step. `false`: the saga is not
    /// stuck in the compensation of this step.
    ///
    /// # Errors
    /// The database cannot be used, or the key is not valid.
    ///
    /// # Cancel safety
    /// It may be done.
    pub async fn resolve_undone<'k>(
        &self,
        saga: impl Into<SagaRef<'k>> + Send,
        step: &str,
        note: &str,
    ) -> Result<bool, Error> {
        let definition = &self.definition;
        let id = saga.into().id(&definition.name)?;
        let (table, pool) = (&definition.table, &definition.pool);
        table.resolve_undone(pool, id, step, note).await
    }

    /// A worker that runs on what other processes have left.
    pub fn worker(&self) -> Worker {
        Worker::new().and(self)
    }

    async fn run(
        &self,
        held: Held,
        seen: Seen,
        since: Instant,
        stop: Stop,
    ) -> Result<Results, Broken> {
        let Seen { saga, steps } = seen;
        let runner = Runner::new(&self.definition, held, saga, steps, since, stop).await?;
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

    /// Equal calls in this process stand behind the first one, without a connection; each looks for
    /// itself when that one has ended, and answers from what it sees if nobody needs to run it.
    async fn line_up(
        &self,
        call: &str,
        key: &str,
        id: RecordId,
        fingerprint: Fingerprint,
        pauses: &Backoff,
    ) -> Result<(Option<coalesce::Leader>, Option<Seen>), Error> {
        let definition = &self.definition;
        let lane = coalesce::Lane {
            // All clones of a pool share their options; another pool has others.
            pool: Arc::as_ptr(&definition.pool.connect_options()) as usize,
            table: definition.table.lane(call),
            id,
            alone: None,
        };
        loop {
            match coalesce::join(lane.clone(), fingerprint) {
                coalesce::Joined::First(first) => return Ok((Some(first), None)),
                // Another input is not what the first one waits for.
                coalesce::Joined::Behind(first) if !first.fingerprint.matches(fingerprint) => {
                    return Ok((None, None));
                }
                coalesce::Joined::Behind(mut first) => {
                    let ended = first.reaches(|_| false);
                    if tokio::time::timeout(pauses.left(), ended).await.is_err() {
                        return Err(self.in_progress(key, id));
                    }
                    let seen = self.see(id).await?;
                    if seen.as_ref().is_some_and(Seen::is_answered) {
                        return Ok((None, seen));
                    }
                }
            }
        }
    }

    /// Whether a build without its list has found it first: so has this one.
    fn was_put_off(&self, saga: &SagaRow) -> bool {
        let cause = saga.stall.as_ref().map(|stall| stall.cause);
        cause == Some(Cause::StepsChanged) && self.definition.order(&saga.steps).is_none()
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
        let key = Some(key).filter(|key| !key.is_empty());
        error.at(
            &self.definition.name,
            key,
            self.definition.settings.shows_key,
            id,
        )
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

fn payload<I: Outcome>(input: &I) -> Result<(Fingerprint, Bytes), SagaError> {
    let encoded = outcome::encode_ok(input, CodecId::Json, 0, None);
    let encoded = encoded.map_err(|error| {
        let words = error.words();
        let detail = words.split_once(": ").map(|(_, detail)| detail.to_owned());
        SagaError::InputNotRecordable {
            error: detail.unwrap_or(words),
        }
    })?;
    let mut fingerprint = FingerprintBuilder::new();
    fingerprint.part(input);
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
