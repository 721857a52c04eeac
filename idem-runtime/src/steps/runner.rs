//! Runs a saga that is held, to its end or to where it has to rest.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::claim::{failed, idempotency_key, repeating, transaction};
use super::context::{Life, Results, Step};
use super::definition::{Body, Definition, Place};
use super::error::{Failure, SagaError, StepError};
use super::lease::{Lease, Lost};
use super::list::{Entry, base};
use super::plan::{Effect, Next, Traits, next};
use super::record::{Found, Note, SagaNote, Undone, reclaim, write_and_commit};
use super::retries::Retries;
use super::sql::{Held, SagaDialect};
use super::stall::{undecidable, unreadable};
use super::state::{SagaRow, SagaState, StepRow};
use super::status::{complete, failure, remaining};
use super::stop::Stop;
use crate::engine::{Backoff, run_to_end};
use crate::error::{Error, ErrorKind};
use crate::outcome::{self, Outcome};
use crate::protocol::Fence;
use crate::retry::Retryable as _;

/// How long a transaction whose end is in doubt is asked after.
const ASKING: Duration = Duration::from_secs(10);
const TRIES: u32 = 5;

/// Why a run did not come to its end.
pub(super) enum Broken {
    /// The saga has another owner, or may have.
    Lost,
    Saga(SagaError),
}

impl From<SagaError> for Broken {
    fn from(error: SagaError) -> Self {
        Self::Saga(error)
    }
}

impl From<Lost> for Broken {
    fn from(_: Lost) -> Self {
        Self::Lost
    }
}

/// One run.
pub(super) struct Runner<D: SagaDialect, I, C> {
    pub(super) definition: Arc<Definition<D, I, C>>,
    pub(super) lease: Lease<D>,
    pub(super) life: Arc<Life<I, C>>,
    pub(super) state: SagaState,
    pub(super) failure: Failure,
    /// The definition's step at each place of the list the saga was begun under.
    order: Vec<Place>,
    pub(super) rows: Vec<StepRow>,
    /// When the last request that extended the lease was sent.
    pub(super) since: Instant,
    stop: Stop,
}

impl<D, I, C> Runner<D, I, C>
where
    D: SagaDialect,
    I: Outcome + Send + Sync + 'static,
    C: Clone + Send + Sync + 'static,
{
    /// A run of the saga that was claimed at `since`, or no earlier.
    pub(super) async fn new(
        definition: &Arc<Definition<D, I, C>>,
        held: Held,
        saga: SagaRow,
        rows: Vec<StepRow>,
        since: Instant,
        stop: Stop,
    ) -> Result<Self, Broken> {
        let rows = complete(&saga.steps, rows);
        let lease = Lease {
            name: definition.name.as_str().into(),
            pool: definition.pool.clone(),
            renew: definition.table.texts::<D>().renew.clone(),
            held,
            time: definition.settings.lease,
        };
        let input = outcome::decode_ok(saga.input.as_deref().unwrap_or_default());
        let order = definition.order(&saga.steps);
        let input = match input {
            Ok(input) => input,
            Err(error) => {
                let error = unreadable(definition, held, &rows, &error).await;
                return Err(Broken::Saga(error));
            }
        };
        let Some(order) = order else {
            return Err(Broken::Saga(changed(definition, &saga.steps, &rows)));
        };
        let life = Life {
            key: saga.key.clone(),
            input,
            context: definition.context.clone(),
        };
        Ok(Self {
            definition: Arc::clone(definition),
            lease,
            life: Arc::new(life),
            state: saga.state,
            failure: failure(&saga),
            order,
            rows,
            since,
            stop,
        })
    }

    /// Runs it.
    pub(super) async fn run(mut self) -> Result<Results, Broken> {
        loop {
            let rows = self.rows.iter().cloned().enumerate();
            let steps: Vec<_> = rows.map(|(at, row)| (self.traits(at), row)).collect();
            let next = next(self.state, &steps);
            match next {
                Next::Run(at) if self.stop.is_asked_for() => self.leave(at, false).await?,
                Next::Undo(at, _) if self.stop.is_asked_for() => self.leave(at, true).await?,
                Next::Run(at) if self.is_used_up(at, false) => self.give_up(at, false).await?,
                Next::Undo(at, _) if self.is_used_up(at, true) => self.give_up(at, true).await?,
                Next::Run(at) => self.forward(at).await?,
                Next::Undo(at, effect) => self.backward(at, effect).await?,
                Next::Stuck { at, undo, cause } => {
                    let error = StepError::stuck(cause, undecidable(cause));
                    self.failed(self.rows[at].clone(), undo, error).await?;
                }
                Next::End(state) => {
                    self.record(Note {
                        row: None,
                        saga: Some(SagaNote::End(state)),
                    })
                    .await?;
                    return match state {
                        SagaState::Completed => Ok(results(&self.rows)),
                        _ => Err(SagaError::Compensated(self.failure).into()),
                    };
                }
            }
        }
    }

    /// The functions of the step at this place.
    pub(super) fn body_of<'d>(
        &self,
        definition: &'d Definition<D, I, C>,
        at: usize,
    ) -> &'d Body<D, I, C> {
        &definition.steps[self.order[at].step].body
    }

    /// What the attempt that `row` describes is run with.
    pub(super) fn step(&self, row: &StepRow, undo: bool) -> Step<I, C> {
        let (name, key) = (&self.definition.name, &self.life.key);
        Step {
            saga: Arc::clone(&self.life),
            earlier: results(&self.rows),
            idempotency_key: idempotency_key(name, key, base(&row.name), undo),
            fence: Fence::new(u64::try_from(self.lease.held.fence).unwrap_or(0)),
            attempt: row.made(undo),
            left_alone: Arc::default(),
        }
    }

    fn traits(&self, at: usize) -> Traits {
        self.definition.traits(self.order[at])
    }

    /// How long an attempt of the step at this place may take.
    pub(super) fn timeout(&self, at: usize) -> Duration {
        self.definition.timeout(self.order[at])
    }

    pub(super) fn retries(&self, row: &StepRow) -> Retries {
        let place = usize::try_from(row.number).ok();
        let place = place.and_then(|at| self.order.get(at));
        place.map_or(self.definition.settings.retries, |place| {
            self.definition.retries(*place)
        })
    }

    /// Whether the attempts were made and none came to an end that could be recorded.
    fn is_used_up(&self, at: usize, undo: bool) -> bool {
        let row = &self.rows[at];
        self.retries(row).are_used_up(row.counted(undo))
    }

    async fn forward(&mut self, at: usize) -> Result<(), Broken> {
        let outside = self.traits(at).outside;
        if outside {
            self.forward_outside(at).await
        } else {
            self.forward_tx(at).await
        }
    }

    async fn backward(&mut self, at: usize, effect: Effect) -> Result<(), Broken> {
        let outside = self.traits(at).outside;
        if outside {
            self.backward_outside(at, effect).await
        } else {
            self.backward_tx(at).await
        }
    }

    /// Writes the note down; when this returns it stands in the database.
    pub(super) async fn record(&mut self, mut note: Note) -> Result<(), Broken> {
        let (mut tries, mut pauses) = (0, repeating());
        loop {
            let sent = Instant::now();
            let error = match write_once(&self.definition, self.lease.held, &note).await {
                Ok(()) => {
                    self.since = sent;
                    self.written(note);
                    return Ok(());
                }
                Err(Undone::Lost) => return Err(Broken::Lost),
                Err(Undone::RolledBack(error)) if error.calls_for_retry() => {
                    match pauses.next() {
                        Some(pause) => tokio::time::sleep(pause).await,
                        None => return Err(SagaError::Idem(unknown(failed::<D>(error))).into()),
                    }
                    continue;
                }
                Err(Undone::RolledBack(error) | Undone::InDoubt(error)) => {
                    if self.resolve(&mut note, &error).await? {
                        return Ok(());
                    }
                    error
                }
            };
            tries += 1;
            if tries >= TRIES {
                return Err(SagaError::Idem(unknown(failed::<D>(error))).into());
            }
        }
    }

    pub(super) fn written(&mut self, note: Note) {
        if let Some(mut row) = note.row {
            row.recorded = true;
            let place = usize::try_from(row.number).ok();
            if let Some(place) = place.and_then(|at| self.rows.get_mut(at)) {
                *place = row;
            }
        }
    }

    /// Finds out whether a note was written whose transaction did not answer: claims the saga anew,
    /// which waits for that transaction and keeps it from committing later.
    pub(super) async fn resolve(
        &mut self,
        note: &mut Note,
        cause: &sqlx::Error,
    ) -> Result<bool, Broken> {
        let mut pauses = Backoff::new(
            Some(ASKING),
            Duration::from_millis(10),
            Duration::from_millis(500),
        );
        loop {
            let sent = Instant::now();
            let asking = self.reclaim();
            let asked = tokio::time::timeout(pauses.left(), asking).await;
            match asked {
                Ok(Ok(Found::Held(held, saga, rows))) => {
                    (self.lease.held, self.since) = (held, sent);
                    self.rows = complete(&saga.steps, rows);
                    if let Some(row) = &mut note.row {
                        let number = row.number;
                        let same = self.rows.iter().find(|known| known.number == number);
                        row.recorded = same.is_some_and(|known| known.recorded);
                    }
                    return Ok(note.is_written(&saga, &self.rows));
                }
                Ok(Ok(Found::LetGo(saga, rows))) if note.let_go(&saga) => {
                    self.rows = complete(&saga.steps, rows);
                    return Ok(true);
                }
                Ok(Ok(Found::LetGo(..) | Found::Lost)) => return Err(Broken::Lost),
                Ok(Ok(Found::Locked) | Err(_)) | Err(_) => match pauses.next() {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => {
                        let error = Error::new(ErrorKind::CommitUnknown).detail(cause.to_string());
                        return Err(SagaError::Idem(error).into());
                    }
                },
            }
        }
    }

    async fn reclaim(&self) -> Result<Found, sqlx::Error> {
        let (definition, held) = (Arc::clone(&self.definition), self.lease.held);
        run_to_end(async move {
            let tx = D::begin(&definition.pool).await?;
            let texts = definition.table.texts::<D>();
            reclaim(tx, texts, held, definition.settings.lease).await
        })
        .await
    }
}

/// One transaction that writes the note, run to its end.
pub(super) async fn write_once<D, I, C>(
    definition: &Arc<Definition<D, I, C>>,
    held: Held,
    note: &Note,
) -> Result<(), Undone>
where
    D: SagaDialect,
    I: 'static,
    C: Send + Sync + 'static,
{
    let (definition, note) = (Arc::clone(definition), note.clone());
    run_to_end(async move {
        let tx = transaction(&definition.pool)
            .await
            .map_err(Undone::RolledBack)?;
        let texts = definition.table.texts::<D>();
        let lease = definition.settings.lease;
        write_and_commit(tx, texts, &texts.renew, held, lease, &note).await
    })
    .await
}

pub(super) fn changed<D: SagaDialect, I, C>(
    definition: &Definition<D, I, C>,
    stored: &str,
    rows: &[StepRow],
) -> SagaError {
    let current = definition.steps.iter();
    SagaError::StepsChanged {
        effect: remaining(rows),
        stored: super::list::entries(stored)
            .iter()
            .map(Entry::shown)
            .collect(),
        current: current.map(|step| step.entry().shown()).collect(),
    }
}

/// The recorded results, by the steps' names without their versions.
pub(super) fn results(rows: &[StepRow]) -> Results {
    let recorded = rows.iter().filter_map(|row| {
        let result: &Bytes = row.result.as_ref()?;
        Some((base(&row.name).to_owned(), result.clone()))
    });
    Results(Arc::new(recorded.collect()))
}

fn unknown(error: Error) -> Error {
    error.effect_is(crate::error::Effect::Unknown)
}
