//! Where a run has to let its saga go, or turn round.

use std::sync::Arc;
use std::time::Duration;

use super::definition::Definition;
use super::error::{INTERRUPTED, SagaError, StepError, StepErrorKind, Unfinished, kept_text};
use super::lease::InDoubt;
use super::record::{Note, SagaNote};
use super::retries::Then;
use super::runner::{Broken, Runner, write_once};
use super::sql::{Held, SagaDialect};
use super::state::{Cause, Rest, SagaState, Stall, StepRow, StepState};
use super::status::remaining;
use crate::error::Error;
use crate::outcome::Outcome;

/// How long a saga whose input does not read here is left to others.
const PUT_OFF: Duration = Duration::from_secs(10);

impl<D, I, C> Runner<D, I, C>
where
    D: SagaDialect,
    I: Outcome + Send + Sync + 'static,
    C: Clone + Send + Sync + 'static,
{
    pub(super) async fn give_up(&mut self, at: usize, undo: bool) -> Result<(), Broken> {
        let row = self.rows[at].clone();
        // The error that is recorded may be that of the step, or of a compensation before the last.
        let is_its_own = !undo || row.state == StepState::CompensationFailed;
        let error = row.error.clone().filter(|_| is_its_own);
        let error = error.unwrap_or_else(|| INTERRUPTED.to_owned());
        let cause = if error == INTERRUPTED {
            Cause::Interrupted
        } else {
            Cause::AttemptFailed
        };
        self.failed(row, undo, StepError::stuck(cause, error)).await
    }

    /// Leaves the saga, between two attempts, to whoever looks next.
    pub(super) async fn leave(&mut self, at: usize, undo: bool) -> Result<(), Broken> {
        let row = self.rows[at].clone();
        let stall = Stall {
            cause: Cause::WorkerStopped,
            step: Some(row.name.clone()),
            error: Some("the worker that ran it was told to stop".to_owned()),
        };
        self.rest(Rest::Waiting, Some(Duration::ZERO), stall, row, undo)
            .await
    }

    /// What becomes of the saga when an attempt has failed; `row` is what is known of the step now.
    pub(super) async fn failed(
        &mut self,
        mut row: StepRow,
        undo: bool,
        error: StepError,
    ) -> Result<(), Broken> {
        let text = error.text();
        row.error = Some(text.clone());
        let then = match (error.kind, undo) {
            (StepErrorKind::Refused | StepErrorKind::Unknown, false) => {
                return self.compensate(row, text).await;
            }
            (StepErrorKind::Refused, true) | (StepErrorKind::Stuck, _) => Then::Stuck,
            (StepErrorKind::Retry, _) | (StepErrorKind::Unknown, true) => {
                self.retries(&row).after(row.counted(undo))
            }
        };
        if undo {
            row.state = StepState::CompensationFailed;
        }
        let (rest, again_in) = match then {
            Then::Again(pause) => {
                self.record(Note {
                    row: Some(row),
                    saga: None,
                })
                .await?;
                let sleep = tokio::time::sleep(pause);
                self.lease.beside(self.since, InDoubt::Stop, sleep).await?;
                return Ok(());
            }
            Then::Later(time) => (Rest::Waiting, Some(time)),
            Then::Stuck => (Rest::Stuck, None),
        };
        let cause = match error.kind {
            StepErrorKind::Refused => Cause::Refused,
            _ => error.cause,
        };
        let stall = Stall {
            cause,
            step: Some(row.name.clone()),
            error: Some(text),
        };
        self.rest(rest, again_in, stall, row, undo).await
    }

    /// Lets the saga go, and says why.
    async fn rest(
        &mut self,
        rest: Rest,
        again_in: Option<Duration>,
        stall: Stall,
        row: StepRow,
        undo: bool,
    ) -> Result<(), Broken> {
        let attempts = row.made(undo);
        self.record(Note {
            row: Some(row),
            saga: Some(SagaNote::Rest(rest, again_in, stall.clone())),
        })
        .await?;
        let left = Unfinished {
            step: stall.step,
            compensation: undo,
            attempts,
            cause: stall.cause,
            error: stall.error.unwrap_or_default(),
            effect: remaining(&self.rows),
            again_in,
        };
        if rest == Rest::Stuck {
            tracing::error!(
                saga = self.definition.name,
                id = %self.lease.held.id,
                key = self.definition.shown(&self.life.key),
                step = left.step,
                compensation = undo,
                attempts,
                cause = left.cause.as_str(),
                "the saga is stuck and needs a person"
            );
            return Err(SagaError::Stuck(left).into());
        }
        Err(SagaError::Waiting(left).into())
    }

    async fn compensate(&mut self, mut row: StepRow, error: String) -> Result<(), Broken> {
        row.state = StepState::Failed;
        let step = row.name.clone();
        self.record(Note {
            row: Some(row),
            saga: Some(SagaNote::Compensate {
                step: step.clone(),
                error: error.clone(),
            }),
        })
        .await?;
        self.state = SagaState::Compensating;
        self.failure.step = Some(step);
        self.failure.error = Some(error);
        Ok(())
    }
}

/// The input does not read here: the saga is left to a build that can, and says so.
pub(super) async fn unreadable<D, I, C>(
    definition: &Arc<Definition<D, I, C>>,
    held: Held,
    rows: &[StepRow],
    error: &Error,
) -> SagaError
where
    D: SagaDialect,
    I: 'static,
    C: Send + Sync + 'static,
{
    let words = error.words();
    let words = words
        .split_once(": ")
        .map_or(words.as_str(), |(_, detail)| detail);
    let text = format!("its stored input does not decode as this build's type: {words}");
    let stall = Stall {
        cause: Cause::InputUndecodable,
        step: None,
        error: Some(kept_text(&text)),
    };
    let note = Note {
        row: None,
        saga: Some(SagaNote::Rest(Rest::Waiting, Some(PUT_OFF), stall)),
    };
    // The lease ends all the same.
    let _ = write_once(definition, held, &note).await;
    SagaError::Waiting(Unfinished {
        step: None,
        compensation: false,
        attempts: 0,
        cause: Cause::InputUndecodable,
        error: text,
        effect: remaining(rows),
        again_in: Some(PUT_OFF),
    })
}

pub(super) fn undecidable(cause: Cause) -> &'static str {
    match cause {
        Cause::CompensationMissing => {
            "it had a compensation when the saga was begun, and this build declares none"
        }
        _ => {
            "an attempt as an outside step ended unknown, and this build declares a transactional \
             step, which cannot find out whether it had its effect"
        }
    }
}
