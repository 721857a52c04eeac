//! Which sagas a person looks for, and what they see of each.

use std::fmt;
use std::time::Duration;

use super::state::{Cause, Rest, SagaState};
use crate::key::RecordId;

/// Which sagas [`SagaTable::list`](super::SagaTable::list), `count` and `retry_all_stuck` mean: all that
/// meet every condition.
///
/// Sagas that wait or are stuck are found by an index; a condition on the state or the age alone reads
/// the table.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SagaFilter {
    name: Option<String>,
    state: Option<SagaState>,
    rest: Option<Rest>,
    cause: Option<Cause>,
    age: Option<Duration>,
}

impl SagaFilter {
    /// All sagas.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Those that need a person.
    #[must_use]
    pub fn stuck() -> Self {
        Self::default().rest(Rest::Stuck)
    }

    /// Those of one definition.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Those in this state.
    #[must_use]
    pub fn state(mut self, state: SagaState) -> Self {
        self.state = Some(state);
        self
    }

    /// Those that wait, or that are stuck.
    #[must_use]
    pub fn rest(mut self, rest: Rest) -> Self {
        self.rest = Some(rest);
        self
    }

    /// Those that do not go on for this cause.
    #[must_use]
    pub fn cause(mut self, cause: Cause) -> Self {
        self.cause = Some(cause);
        self
    }

    /// Those that were begun at least so long ago, by the database's clock.
    #[must_use]
    pub fn older_than(mut self, age: Duration) -> Self {
        self.age = Some(age);
        self
    }

    pub(super) fn wanted_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(super) fn least_age(&self) -> Option<Duration> {
        self.age
    }

    /// Columns and the words that they must hold.
    pub(super) fn words(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let words = [
            ("state", self.state.map(SagaState::as_str)),
            ("rest", self.rest.map(Rest::as_str)),
            ("cause", self.cause.map(Cause::as_str)),
        ];
        let wanted = words.into_iter();
        wanted.filter_map(|(column, word)| Some((column, word?)))
    }
}

/// What a list says of a saga.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SagaSummary {
    /// Its id; the page after it begins behind it.
    pub id: RecordId,
    /// The definition's name.
    pub name: String,
    pub(super) key: String,
    /// What is happening to it, or has.
    pub state: SagaState,
    /// Why nobody runs it, where that is on purpose.
    pub rest: Option<Rest>,
    /// Why it does not go on.
    pub cause: Option<Cause>,
    /// The step that keeps it, with its version.
    pub step: Option<String>,
    /// The error, in words.
    pub error: Option<String>,
    /// How long ago it was begun.
    pub age: Duration,
    /// When it is run on; `None`: it has ended, or needs a person.
    pub due_in: Option<Duration>,
}

impl SagaSummary {
    /// Its key, in the canonical text that is stored. `Debug` does not show it: keys carry names and
    /// card numbers.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Debug for SagaSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SagaSummary")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("state", &self.state)
            .field("rest", &self.rest)
            .field("cause", &self.cause)
            .field("step", &self.step)
            .field("error", &self.error)
            .field("age", &self.age)
            .field("due_in", &self.due_in)
            .finish_non_exhaustive()
    }
}
