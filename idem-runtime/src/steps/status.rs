//! Where a saga stands, for people.

use std::fmt;
use std::time::Duration;

use super::error::{Failure, Unfinished};
use super::list::entries;
use super::state::{Cause, Rest, SagaRow, SagaState, StepRow, StepState};
use crate::error::Effect;
use crate::key::RecordId;
use crate::protocol::Fence;

/// Where a saga stands.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SagaStatus {
    /// Its id, as logs name it.
    pub id: RecordId,
    /// The definition's name.
    pub name: String,
    key: String,
    /// What is happening to it, or has.
    pub state: SagaState,
    /// Why nobody runs it, where that is on purpose.
    pub rest: Option<Rest>,
    /// Why it does not go on.
    pub cause: Option<Cause>,
    /// The same in words.
    pub error: Option<String>,
    /// When it is run on by the next worker, if its owner gives no sign of life; `None`: never.
    pub due_in: Option<Duration>,
    /// The fencing number of its last owner.
    pub fence: Fence,
    /// Why it is, or was, compensated.
    pub failure: Option<Failure>,
    /// Its steps, in the order of the list it was begun under.
    pub steps: Vec<StepStatus>,
}

/// Where a step stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepStatus {
    /// Its name, with its version.
    pub name: String,
    /// Where it stands.
    pub state: StepState,
    /// How many attempts were made.
    pub attempts: u32,
    /// How many attempts to compensate it were made.
    pub undo_attempts: u32,
    /// Its effect was there before the saga ([`Step::skip_compensation`](super::Step::skip_compensation)).
    pub left_alone: bool,
    /// The last error.
    pub error: Option<String>,
}

impl SagaStatus {
    /// Its key, in the canonical text that is stored. `Debug` does not show it: keys carry names and
    /// card numbers.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn of(id: RecordId, saga: SagaRow, rows: Vec<StepRow>) -> Self {
        let failure = (saga.state != SagaState::Completed).then(|| failure(&saga));
        let failure = failure.filter(|failure| failure.cancelled || failure.step.is_some());
        Self {
            id,
            cause: saga.stall.as_ref().map(|stall| stall.cause),
            error: saga.stall.as_ref().and_then(|stall| stall.error.clone()),
            state: saga.state,
            rest: saga.rest,
            due_in: saga.due_in.map(time),
            fence: Fence::new(u64::try_from(saga.fence).unwrap_or(0)),
            failure,
            steps: complete(&saga.steps, rows)
                .into_iter()
                .map(status)
                .collect(),
            name: saga.name,
            key: saga.key,
        }
    }
}

fn status(row: StepRow) -> StepStatus {
    StepStatus {
        name: row.name,
        state: row.state,
        attempts: count(row.attempts),
        undo_attempts: count(row.undo_attempts),
        left_alone: row.left_alone,
        error: row.error,
    }
}

/// A row for each step of the list, whether it was begun or not.
pub(super) fn complete(list: &str, rows: Vec<StepRow>) -> Vec<StepRow> {
    let steps = entries(list);
    let pending = steps.iter().enumerate();
    let mut all: Vec<_> = pending
        .map(|(at, entry)| StepRow::pending(at, &entry.name))
        .collect();
    for row in rows {
        let place = usize::try_from(row.number)
            .ok()
            .and_then(|at| all.get_mut(at));
        if let Some(place) = place {
            *place = row;
        }
    }
    all
}

pub(super) fn failure(saga: &SagaRow) -> Failure {
    Failure {
        cancelled: saga.cancelled,
        step: saga.failed_step.clone(),
        error: saga.error.clone(),
    }
}

/// What a saga that rests waits for.
pub(super) fn unfinished(saga: &SagaRow, rows: &[StepRow]) -> Unfinished {
    let compensation = saga.state == SagaState::Compensating;
    let stall = saga.stall.as_ref();
    let step = stall.and_then(|stall| stall.step.clone());
    let row = rows.iter().find(|row| Some(&row.name) == step.as_ref());
    Unfinished {
        attempts: row.map_or(0, |row| row.made(compensation)),
        compensation: compensation && step.is_some(),
        step,
        cause: stall.map_or(Cause::AttemptFailed, |stall| stall.cause),
        error: stall
            .and_then(|stall| stall.error.clone())
            .unwrap_or_default(),
        effect: remaining(rows),
        again_in: saga.due_in.map(time),
    }
}

/// What remains of the steps.
pub(super) fn remaining(rows: &[StepRow]) -> Effect {
    let remains = |row: &StepRow| match row.state {
        StepState::Pending | StepState::Compensated => false,
        StepState::Failed => row.unknown,
        StepState::Done => !row.left_alone,
        StepState::Started | StepState::Compensating | StepState::CompensationFailed => true,
    };
    if rows.iter().any(remains) {
        Effect::Unknown
    } else {
        Effect::None
    }
}

pub(super) fn time(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

pub(super) fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

impl fmt::Debug for SagaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SagaStatus")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("state", &self.state)
            .field("rest", &self.rest)
            .field("cause", &self.cause)
            .field("error", &self.error)
            .field("due_in", &self.due_in)
            .field("fence", &self.fence)
            .field("failure", &self.failure)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}
