//! What an error of a database means.

use super::dialect::Dialect;
use crate::error::ErrorKind;

/// Whether an error, of whatever database, says that the database gave the transaction up and that
/// running all of it again may help.
pub(crate) fn gives_the_transaction_up(error: &sqlx::Error) -> bool {
    fn is<D: Dialect>(error: &sqlx::Error) -> bool {
        let code = error.as_database_error().and_then(D::code);
        code.is_some_and(|code| D::kind_of_code(&code) == ErrorKind::RetryTransaction)
    }
    let mut given_up = false;
    #[cfg(feature = "postgres")]
    {
        given_up |= is::<sqlx::Postgres>(error);
    }
    #[cfg(feature = "sqlite")]
    {
        given_up |= is::<sqlx::Sqlite>(error);
    }
    #[cfg(feature = "mysql")]
    {
        given_up |= is::<sqlx::MySql>(error);
    }
    given_up
}

/// Whether a commit that is answered with this error has certainly not happened.
pub(crate) fn refuses_commit<D: Dialect>(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(D::code);
    code.is_some_and(|code| D::refuses_commit(&code))
}
