//! Telling a replay from a first run without changing the business type.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock::Moment;
use crate::error::ErrorKind;
use crate::key::RecordId;

tokio::task_local! {
    static OBSERVER: Arc<Slot>;
}

/// How one idempotent call was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answered {
    /// The body ran in this call, or would have, had its backstop been able to look or its token been
    /// good.
    FirstRun,
    /// The answer comes from the record.
    Replay {
        /// When the first run's outcome was recorded, by the store's clock; not known for an answer
        /// that was handed on inside the process, or found by a backstop.
        recorded_at: Option<Moment>,
    },
    /// The call ended in an [`Error`](crate::Error) of the framework.
    Refused,
}

/// What [`observe`] saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    call: Option<(RecordId, Answered)>,
    refusal: Option<ErrorKind>,
}

impl Observed {
    /// Whether the answer was replayed.
    #[must_use]
    pub fn replayed(&self) -> bool {
        matches!(self.answered(), Some(Answered::Replay { .. }))
    }

    /// How the call was answered; `None` if no idempotent call was made, or it never got as far as
    /// its record.
    #[must_use]
    pub fn answered(&self) -> Option<Answered> {
        self.call.map(|(_, answered)| answered)
    }

    /// Why the call was refused, if it ended in an [`Error`](crate::Error) of the framework: before
    /// its body ran, or after it, where a transaction of the framework's own was not committed.
    #[must_use]
    pub fn refusal(&self) -> Option<ErrorKind> {
        self.refusal
    }

    /// The record's id.
    #[must_use]
    pub fn record_id(&self) -> Option<RecordId> {
        self.call.map(|(id, _)| id)
    }
}

#[derive(Debug, Default)]
struct Slot {
    /// The only call that may run, outside of any namespace.
    expected: Option<RecordId>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    claimed: bool,
    call: Option<(RecordId, Answered)>,
    refusal: Option<ErrorKind>,
}

/// Runs `call` and tells how the first idempotent call inside it was answered. Calls that its body
/// makes do not count.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (answer, seen) = idem_runtime::observe::observe(async { 7 }).await;
/// assert_eq!(answer, 7);
/// assert!(!seen.replayed()); // no idempotent call was made
/// # }
/// ```
///
/// # Cancel safety
/// As cancel safe as `call`.
pub async fn observe<F: Future>(call: F) -> (F::Output, Observed) {
    observed(None, call).await
}

/// As [`observe`]; a first idempotent call with another record than this one is refused.
pub(crate) async fn observe_only<F: Future>(id: RecordId, call: F) -> (F::Output, Observed) {
    observed(Some(id), call).await
}

async fn observed<F: Future>(expected: Option<RecordId>, call: F) -> (F::Output, Observed) {
    let slot = Arc::new(Slot {
        expected,
        ..Slot::default()
    });
    let output = OBSERVER.scope(Arc::clone(&slot), call).await;
    let state = slot.state.lock().unwrap_or_else(PoisonError::into_inner);
    let (call, refusal) = (state.call, state.refusal);
    drop(state);
    (output, Observed { call, refusal })
}

/// The place where one call reports; empty when nobody observes, or an outer call reports already.
#[derive(Clone, Debug)]
pub(crate) struct Report(Option<Arc<Slot>>);

impl Report {
    pub(crate) fn claim() -> Self {
        let slot = OBSERVER.try_with(Arc::clone).ok().filter(|slot| {
            let mut state = slot.state.lock().unwrap_or_else(PoisonError::into_inner);
            !std::mem::replace(&mut state.claimed, true)
        });
        Self(slot)
    }

    pub(crate) fn nobody() -> Self {
        Self(None)
    }

    /// Whether the call with this record, outside of any namespace, may run.
    pub(crate) fn admits(&self, id: RecordId) -> bool {
        let expected = self.0.as_ref().and_then(|slot| slot.expected);
        expected.is_none_or(|expected| expected == id)
    }

    /// The call ended in an error of the framework.
    pub(crate) fn refused(&self, id: RecordId, kind: ErrorKind) {
        self.answered(id, Answered::Refused);
        if let Some(slot) = &self.0 {
            let mut state = slot.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.refusal = Some(kind);
        }
    }

    pub(crate) fn answered(&self, id: RecordId, answered: Answered) {
        if let Some(slot) = &self.0 {
            let mut state = slot.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.call = Some((id, answered));
            state.refusal = None;
        }
    }
}
