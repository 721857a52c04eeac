use std::sync::atomic::{AtomicBool, Ordering};

use super::Driven;
use crate::key::RecordId;
use crate::observe::{Answered, Report};

/// What a backstop says is an answer, or why it could not be asked.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no answer of a backstop",
    label = "the future must give `Result<Option<T>, E>`",
    note = "`T` is what the function returns; the function's error must be `From<E>`"
)]
pub trait Said<T, E> {
    /// `None`: nothing is known, the body runs.
    #[doc(hidden)]
    fn known(self) -> Option<Result<T, E>>;
}

impl<T, E: From<F>, F> Said<T, E> for Result<Option<T>, F> {
    fn known(self) -> Option<Result<T, E>> {
        match self {
            Ok(known) => known.map(Ok),
            Err(error) => Some(Err(E::from(error))),
        }
    }
}

/// Whether the backstop answered, and not the body, in one run.
#[derive(Debug, Default)]
pub struct Backstop(AtomicBool);

impl Backstop {
    /// One that was not asked yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// The call's answer, if what the backstop said is one.
    pub fn answer<T, E>(&self, said: impl Said<T, E>) -> Option<Result<T, E>> {
        let known = said.known();
        self.0.store(known.is_some(), Ordering::Relaxed);
        known
    }
}

/// The answer of a call whose key is known and whose outcome is gone, before its backstop was asked.
#[derive(Debug)]
#[must_use]
pub struct Gone<E> {
    pub(super) refusal: E,
    pub(super) seen: Seen,
}

/// Where to report such a call once more.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) id: RecordId,
    pub(super) report: Report,
}

impl<E> Gone<E> {
    /// What the backstop knows, or else that it is gone. Nothing is recorded: the tombstone stays.
    ///
    /// # Errors
    /// The function's own, or the framework's.
    pub fn unless_known<T>(self, said: impl Said<T, E>) -> Result<T, E> {
        let Some(known) = said.known() else {
            return Err(self.refusal);
        };
        if known.is_ok() {
            let Seen { id, report } = self.seen;
            report.answered(id, Answered::Replay { recorded_at: None });
        }
        known
    }
}

impl<R> Driven<R> {
    /// Tells a result of the backstop's from one of the body's.
    pub fn unless_answered_by(self, backstop: &Backstop) -> Self {
        match self {
            Self::Finished(result) if backstop.0.load(Ordering::Relaxed) => Self::Known(result),
            driven => driven,
        }
    }
}
