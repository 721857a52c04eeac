use std::sync::atomic::{AtomicBool, Ordering};

use super::Driven;

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

impl<R> Driven<R> {
    /// Tells a result of the backstop's from one of the body's.
    pub fn unless_answered_by(self, backstop: &Backstop) -> Self {
        match self {
            Self::Finished(result) if backstop.0.load(Ordering::Relaxed) => Self::Known(result),
            driven => driven,
        }
    }
}
