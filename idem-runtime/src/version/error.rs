//! Why a versioned update did not change its row.

use std::fmt;

use sqlx::error::BoxDynError;

use crate::error::{Effect, Error, Retry};
use crate::retry::Retryable;
use crate::store::sql::guarded::{effect_of, retry_of};

/// Why a versioned update did not change its row.
#[derive(Debug)]
#[non_exhaustive]
pub enum VersionError {
    /// The row has another version than the one the change was made from: read again, decide again.
    Conflict {
        /// The version that was read before.
        expected: i64,
        /// The version the row has now; `None` if it has none (NULL).
        actual: Option<i64>,
    },
    /// There is no row with this id. Repeating cannot help.
    NotFound,
    /// The row is there in the expected version and the database did not update it: a trigger, a
    /// rule or a row security policy keeps it.
    Kept {
        /// The version that the row has.
        version: i64,
    },
    /// More than one row has this id: the id column is not unique. Roll back.
    Ambiguous {
        /// How many rows were changed.
        rows: u64,
    },
    /// The id or a value cannot be sent, or the version cannot be raised any more. Nothing was sent.
    NotSent(BoxDynError),
    /// The update failed: the table or the types do not fit, or the database.
    Failed(Error),
    /// A statement of the caller's own failed, which `?` has brought here.
    Database(sqlx::Error),
}

impl VersionError {
    /// What it means for the update: [`Effect::None`] where nothing of it remains.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::Conflict { .. } | Self::NotFound | Self::Kept { .. } | Self::NotSent(_) => {
                Effect::None
            }
            Self::Ambiguous { .. } => Effect::Done,
            Self::Failed(error) => error.effect(),
            Self::Database(error) => effect_of(error),
        }
    }

    /// Whether and how to repeat it.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Conflict {
                actual: Some(_), ..
            } => Retry::NewTransaction,
            Self::Conflict { actual: None, .. }
            | Self::NotFound
            | Self::Kept { .. }
            | Self::NotSent(_)
            | Self::Ambiguous { .. } => Retry::Never,
            Self::Failed(error) => error.retry(),
            Self::Database(error) => retry_of(error),
        }
    }

    /// Whether the whole transaction is worth another try.
    #[must_use]
    pub fn calls_for_retry(&self) -> bool {
        self.retry() == Retry::NewTransaction
    }
}

impl Retryable for VersionError {
    fn calls_for_retry(&self) -> bool {
        Self::calls_for_retry(self)
    }
}

impl From<Error> for VersionError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl fmt::Display for VersionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict {
                expected,
                actual: Some(actual),
            } => write!(
                f,
                "the row has version {actual}, the change was made from {expected} (nothing was \
                 changed; read it again)"
            ),
            Self::Conflict {
                expected,
                actual: None,
            } => write!(
                f,
                "the row has no version, the change was made from {expected} (nothing was changed)"
            ),
            Self::NotFound => {
                f.write_str("there is no row with this id (nothing was changed; do not repeat)")
            }
            Self::Kept { version } => write!(
                f,
                "the row is there in version {version} and was not updated: a trigger, a rule or a \
                 policy keeps it"
            ),
            Self::Ambiguous { rows } => write!(
                f,
                "{rows} rows have this id and were changed: roll back, the id column is not unique"
            ),
            Self::NotSent(_) => f.write_str(
                "the id or a value of the versioned update cannot be sent (nothing was sent)",
            ),
            Self::Failed(error) => write!(f, "the versioned update: {error}"),
            Self::Database(_) => {
                f.write_str("a statement in the transaction of the versioned update failed")
            }
        }
    }
}

impl std::error::Error for VersionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotSent(error) => Some(&**error),
            Self::Failed(error) => Some(error),
            Self::Database(error) => Some(error),
            _ => None,
        }
    }
}

impl From<sqlx::Error> for VersionError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}
