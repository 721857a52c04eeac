//! Which errors call for the transaction again.

use std::error::Error as StdError;

use crate::error::{Error, Retry};
use crate::store::sql::gives_the_transaction_up;

/// An error that knows whether running the whole transaction again may help.
///
/// For your own error type hand the question on:
///
/// ```
/// # #[cfg(feature = "_sqlx")] mod example {
/// use idem_runtime::retry::Retryable;
///
/// enum OrderError {
///     Idem(idem_runtime::Error),
///     Database(sqlx::Error),
///     SoldOut,
/// }
///
/// impl Retryable for OrderError {
///     fn calls_for_retry(&self) -> bool {
///         match self {
///             Self::Idem(error) => error.calls_for_retry(),
///             Self::Database(error) => error.calls_for_retry(),
///             Self::SoldOut => false,
///         }
///     }
/// }
/// # }
/// ```
///
/// It is asked of the error type itself and not guessed from a chain of sources: a wrapper that is
/// `#[error(transparent)]` hides what it wraps.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not tell which of its errors call for the transaction again",
    label = "not `Retryable`",
    note = "implement `Retryable` and hand the question on to the `idem::Error` and the `sqlx::Error` inside"
)]
pub trait Retryable {
    /// Whether nothing remains of the transaction and it may succeed when it is run again.
    fn calls_for_retry(&self) -> bool;
}

/// Serialization failure, deadlock, changed record, lock wait, and SQLite's busy in all its forms.
impl Retryable for sqlx::Error {
    fn calls_for_retry(&self) -> bool {
        gives_the_transaction_up(self)
    }
}

/// What [`Error::retry`] says: [`Retry::NewTransaction`].
impl Retryable for Error {
    fn calls_for_retry(&self) -> bool {
        self.retry() == Retry::NewTransaction
    }
}

/// That of an [`Error`](crate::Error) or `sqlx::Error` in the box; any other is not retried.
impl Retryable for Box<dyn StdError + Send + Sync> {
    fn calls_for_retry(&self) -> bool {
        if let Some(error) = self.downcast_ref::<Error>() {
            return error.calls_for_retry();
        }
        let error = self.downcast_ref::<sqlx::Error>();
        error.is_some_and(Retryable::calls_for_retry)
    }
}
