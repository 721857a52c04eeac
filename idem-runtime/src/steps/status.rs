use std::time::Duration;

use super::error::{Failure, Unfinished};
use super::list::entries;
use super::state::{Rest, SagaRow, SagaState, StepRow, StepState};
use crate::protocol::Fence;

/// Where a saga stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SagaStatus {
    /// The definition's name.
    pub name: String,
    /// Its key.
    pub key: String,
    /// What is happening to it, or has.
    pub state: SagaState,
    /// Why nobody runs it, where that is on purpose.
    pub rest: Option<Rest>,
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
    /// Its effect was there before the saga ([`Step::leave_alone`](super::Step::leave_alone)).
    pub left_alone: bool,
    /// The last error.
    pub error: Option<String>,
}

impl SagaStatus {
    pub(super) fn of(saga: SagaRow, rows: Vec<StepRow>) -> Self {
        let failure = (saga.state != SagaState::Completed).then(|| failure(&saga));
        let failure = failure.filter(|failure| failure.cancelled || failure.step.is_some());
        Self {
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
        .map(|(at, entry)| StepRow::pending(at, entry))
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

/// What a saga that rests waits for: the step whose last attempt failed.
pub(super) fn unfinished(saga: &SagaRow, rows: &[StepRow]) -> Unfinished {
    let compensation = saga.state == SagaState::Compensating;
    let is_it = |row: &&StepRow| match row.state {
        StepState::Pending | StepState::Started => !compensation && row.attempts > 0,
        StepState::Done => compensation && row.error.is_some(),
        StepState::Compensating | StepState::CompensationFailed => compensation,
        StepState::Failed | StepState::Compensated => false,
    };
    let row = rows.iter().rev().find(is_it);
    let attempts = row.map_or(0, |row| {
        count(if compensation {
            row.undo_attempts
        } else {
            row.attempts
        })
    });
    Unfinished {
        step: row.map(|row| row.name.clone()).unwrap_or_default(),
        compensation,
        attempts,
        error: row.and_then(|row| row.error.clone()).unwrap_or_default(),
        again_in: saga.due_in.map(time),
    }
}

fn time(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

pub(super) fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}
