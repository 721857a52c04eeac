//! What can stop a call, and what the caller does about it.

use idem::retry::Retryable;
use idem::{ErrorKind, Retry};

use crate::money::Money;

/// Why a notice was not booked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderError {
    /// From the framework; `From` is all it asks of an error type.
    #[error(transparent)]
    Idem(#[from] idem::Error),
    /// From the database.
    #[error("the database: {0}")]
    Database(#[from] sqlx::Error),
    /// The trade is known, and is not what this notice says it is.
    #[error("its trade is known as {known}")]
    OtherTrade { known: String },
    /// All refunds together would give back more than was paid.
    #[error("refund {refund_no:?} of {amount} exceeds what is left of its trade")]
    AboveTrade { refund_no: String, amount: Money },
    /// More in one currency than a 64-bit column holds.
    #[error("with {amount} the sum of {whose} is more than can be booked")]
    SumTooLarge { whose: &'static str, amount: Money },
}

impl OrderError {
    /// Whether and how the caller repeats the call.
    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Idem(error) => error.retry(),
            Self::Database(error) => retry(error),
            Self::OtherTrade { .. } | Self::AboveTrade { .. } | Self::SumTooLarge { .. } => {
                Retry::Never
            }
        }
    }

    /// A sum beyond its column, told by the database: out of range, or not an integer any more.
    pub(crate) fn of_sum(error: sqlx::Error, whose: &'static str, amount: Money) -> Self {
        let code = error.as_database_error().and_then(|error| error.code());
        match code.as_deref() {
            Some("22003" | "3091") => Self::SumTooLarge { whose, amount },
            _ => error.into(),
        }
    }

    /// Whether the notice names a known trade with other contents.
    pub(crate) fn is_mismatch(&self) -> bool {
        match self {
            Self::Idem(error) => error.kind() == ErrorKind::FingerprintMismatch,
            Self::OtherTrade { .. } => true,
            Self::Database(_) | Self::AboveTrade { .. } | Self::SumTooLarge { .. } => false,
        }
    }
}

impl Retryable for OrderError {
    fn calls_for_retry(&self) -> bool {
        match self {
            Self::Idem(error) => error.calls_for_retry(),
            Self::Database(error) => error.calls_for_retry(),
            Self::OtherTrade { .. } | Self::AboveTrade { .. } | Self::SumTooLarge { .. } => false,
        }
    }
}

/// What ends a transaction is run again at once; a connection that cannot be had or is lost may be there
/// again soon.
fn retry(error: &sqlx::Error) -> Retry {
    match error {
        error if error.calls_for_retry() => Retry::NewTransaction,
        sqlx::Error::Database(error) => match error.code().as_deref() {
            // Postgres is starting, stopping, out of connections, or was told to end ours.
            Some("57P01" | "57P02" | "57P03" | "53300") => Retry::Later(None),
            _ => Retry::Never,
        },
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed => {
            Retry::Later(None)
        }
        _ => Retry::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_is_worth_another_try_and_a_wrong_query_is_not() {
        let lost = OrderError::from(sqlx::Error::PoolTimedOut);
        assert_eq!(lost.retry(), Retry::Later(None));
        let wrong = OrderError::from(sqlx::Error::RowNotFound);
        assert_eq!(wrong.retry(), Retry::Never);
    }

    #[test]
    fn only_other_contents_are_a_mismatch() {
        let other = idem::Error::new(ErrorKind::FingerprintMismatch);
        assert!(OrderError::from(other).is_mismatch());
        assert!(!OrderError::from(idem::Error::new(ErrorKind::InProgress)).is_mismatch());
        assert!(!OrderError::from(sqlx::Error::RowNotFound).is_mismatch());
    }
}
