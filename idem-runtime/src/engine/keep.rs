use std::fmt;

use super::{Contract, Driven, contract};
use crate::error::{Error, ErrorKind};
use crate::outcome::{Outcome, ServiceError};
use crate::probe::EqProbe;

/// What is recorded instead of the whole answer: a part from which it can be made again.
pub struct Keep<T, K> {
    part: fn(&T) -> K,
}

impl<T, K> Keep<T, K> {
    /// Keeps what `part` gives.
    #[must_use]
    pub const fn new(part: fn(&T) -> K) -> Self {
        Self { part }
    }

    /// The contract of a function of which this is recorded.
    #[must_use]
    pub fn contract<E: ServiceError>(&self) -> Contract<K, E>
    where
        K: Outcome,
    {
        contract()
    }

    /// Asks for the equality of what is kept.
    #[must_use]
    pub const fn probe(&self) -> EqProbe<K> {
        EqProbe::new()
    }

    /// A body's result as it is recorded, and the answer itself.
    pub fn part<E>(&self, driven: Driven<Result<T, E>>) -> (Driven<Result<K, E>>, Option<T>) {
        let split = |result: Result<T, E>| match result {
            Ok(value) => (Ok((self.part)(&value)), Some(value)),
            Err(error) => (Err(error), None),
        };
        match driven {
            Driven::Finished(result) => {
                let (kept, value) = split(result);
                (Driven::Finished(kept), value)
            }
            Driven::Known(result) => {
                let (kept, value) = split(result);
                (Driven::Known(kept), value)
            }
            Driven::LeaseLost(lost) => (Driven::LeaseLost(lost), None),
        }
    }
}

impl<K, E> Contract<K, E> {
    /// The answer of a first run of which `K` was kept.
    ///
    /// # Errors
    /// The function's own, or the framework's.
    pub fn first<T>(&self, value: Option<T>, recorded: Result<K, E>) -> Result<T, E> {
        match (recorded, value) {
            (Ok(_), Some(value)) => Ok(value),
            (Err(error), _) => Err(error),
            // Something was recorded, so there was a value.
            (Ok(_), None) => self.refuse(Error::new(ErrorKind::OutcomeGone)),
        }
    }
}

impl<T, K> fmt::Debug for Keep<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keep").finish_non_exhaustive()
    }
}

/// An answer that was made again, or why it could not be.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no answer that was rebuilt",
    label = "the future must give `Result<T, E>`",
    note = "`T` is what the function returns; the function's error must be `From<E>`"
)]
pub trait Rebuilt<T, E> {
    /// As the function gives it.
    #[doc(hidden)]
    fn answer(self) -> Result<T, E>;
}

impl<T, E: From<F>, F> Rebuilt<T, E> for Result<T, F> {
    fn answer(self) -> Result<T, E> {
        self.map_err(E::from)
    }
}

/// The answer of a replay.
///
/// # Errors
/// It could not be made again.
pub fn rebuilt<T, K, E>(_: &Keep<T, K>, answer: impl Rebuilt<T, E>) -> Result<T, E> {
    answer.answer()
}
