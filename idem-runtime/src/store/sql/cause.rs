//! What an error of a database means, and a few words for it.
//!
//! Each database has one table, from its code to a kind and words; nothing else in the framework
//! looks at codes to find out what they mean. The words are ours: a server's own message can carry
//! values. Names of tables and constraints are shown where the driver gives them.

use std::fmt::Write as _;
use std::time::Duration;

use super::dialect::Dialect;
use crate::error::{Effect, Error, ErrorKind, Retry};

/// What a code means for a statement of the framework's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct Meaning {
    pub(crate) kind: ErrorKind,
    pub(crate) words: &'static str,
    /// A new transaction at once meets the same.
    lasts: bool,
}

impl Meaning {
    pub(crate) const fn new(kind: ErrorKind, words: &'static str) -> Self {
        Self {
            kind,
            words,
            lasts: false,
        }
    }

    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) const fn lasting(mut self) -> Self {
        self.lasts = true;
        self
    }
}

/// How long to wait for room, or for a server that takes writes.
const PAUSE: Duration = Duration::from_secs(1);

/// An error of one of the framework's own statements.
pub(crate) fn classify<D: Dialect>(error: sqlx::Error) -> Error {
    let Described {
        kind, text, lasts, ..
    } = describe::<D>(&error);
    let mut out = Error::new(kind).because(text);
    match kind {
        ErrorKind::Schema => {
            out = out.detail("a table of the framework's is missing, or has other columns");
        }
        // The transaction goes with its connection, or is rolled back by its owner.
        ErrorKind::TransactionEnded | ErrorKind::StoreUnavailable => {
            out = out.effect_is(Effect::None);
        }
        ErrorKind::StoreExhausted => out = out.after(PAUSE),
        _ => {}
    }
    if lasts {
        out = out.retry_is(Retry::Later(Some(PAUSE)));
    }
    out.caused_by(error)
}

/// After a failed statement nothing more can be done in the caller's transaction: a lost connection
/// calls for another transaction.
pub(crate) fn in_transaction(error: Error) -> Error {
    match (error.kind(), error.retry()) {
        (ErrorKind::StoreUnavailable, Retry::Later(None)) => error.retry_is(Retry::NewTransaction),
        _ => error,
    }
}

/// Kind and words of an error, whichever statement it comes from.
pub(crate) struct Described {
    pub(crate) kind: ErrorKind,
    pub(crate) text: String,
    lasts: bool,
}

pub(crate) fn describe<D: Dialect>(error: &sqlx::Error) -> Described {
    if let sqlx::Error::Database(database) = error
        && let Some(code) = D::code(&**database)
    {
        let meaning = if is_ours::<D>(error) {
            UNDEFERRED
        } else {
            D::meaning(&code)
        };
        let mut text = format!("{} ({} {code}", meaning.words, D::CODE);
        // Writing into a String does not fail.
        if let Some(table) = database.table() {
            let _ = write!(text, ", table {table}");
        }
        if let Some(constraint) = database.constraint() {
            let _ = write!(text, ", constraint {constraint}");
        }
        text.push(')');
        return Described {
            kind: meaning.kind,
            text,
            lasts: meaning.lasts,
        };
    }
    let (kind, text) = of_the_driver(error);
    Described {
        kind,
        text,
        lasts: false,
    }
}

const UNDEFERRED: Meaning = Meaning::new(
    ErrorKind::TransactionEnded,
    "there is no transaction any more (a COMMIT or a ROLLBACK was sent as SQL), or it checks all \
     constraints at once: SET CONSTRAINTS by name, not ALL",
);

/// The deferred foreign key of an unfinished reservation, checked at once.
fn is_ours<D: Dialect>(error: &sqlx::Error) -> bool {
    let Some(database) = error.as_database_error() else {
        return false;
    };
    let constraint = database.constraint();
    D::code(database).is_some_and(|code| code == "23503")
        && constraint.is_some_and(|name| name.ends_with("_incomplete_fkey"))
}

fn of_the_driver(error: &sqlx::Error) -> (ErrorKind, String) {
    use sqlx::Error as E;
    let text = match error {
        E::Io(error) => error.kind().to_string(),
        E::Tls(_) => "the TLS handshake failed".to_owned(),
        E::PoolTimedOut => "no connection within the pool's time-out: all are in use, or the \
             server cannot be reached"
            .to_owned(),
        E::PoolClosed => "the pool is closed".to_owned(),
        E::WorkerCrashed => "the connection's worker ended".to_owned(),
        E::BeginFailed => "BEGIN opened no transaction".to_owned(),
        E::Protocol(_) => "the driver did not understand the answer".to_owned(),
        E::ColumnDecode { .. } | E::ColumnNotFound(_) | E::Decode(_) => {
            return (
                ErrorKind::Schema,
                "a column is missing or has another type".to_owned(),
            );
        }
        E::Configuration(_) => {
            let words = "the connection's options are not valid".to_owned();
            return (ErrorKind::StoreRefused, words);
        }
        E::Encode(_) => {
            let words = "the driver cannot send a value".to_owned();
            return (ErrorKind::StoreRefused, words);
        }
        _ => "the driver failed".to_owned(),
    };
    (ErrorKind::StoreUnavailable, text)
}

/// Whether this database says that it gave the transaction, or the statement, up: nothing of it
/// remains, and running it again may help.
pub(crate) fn was_given_up<D: Dialect>(error: &dyn sqlx::error::DatabaseError) -> bool {
    D::code(error).is_some_and(|code| D::meaning(&code).kind == ErrorKind::RetryTransaction)
}

/// The same, of whatever database.
pub(crate) fn gives_the_transaction_up(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else {
        return false;
    };
    let mut given_up = false;
    #[cfg(feature = "postgres")]
    {
        given_up |= was_given_up::<sqlx::Postgres>(error);
    }
    #[cfg(feature = "sqlite")]
    {
        given_up |= was_given_up::<sqlx::Sqlite>(error);
    }
    #[cfg(feature = "mysql")]
    {
        given_up |= was_given_up::<sqlx::MySql>(error);
    }
    given_up
}

/// Whether a commit that is answered with this error has certainly not happened.
pub(crate) fn refuses_commit<D: Dialect>(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(D::code);
    code.is_some_and(|code| D::refuses_commit(&code))
}

/// Whether a table is not there that was there before, in the same transaction.
pub(crate) fn table_is_gone<D: Dialect>(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(D::code);
    code.is_some_and(|code| matches!(&*code, "42P01" | "1146"))
}
