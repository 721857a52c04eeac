use std::fmt;

use crate::retry::Retryable;

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
    /// The database.
    Database(sqlx::Error),
}

impl VersionError {
    /// Whether the whole transaction is worth another try.
    #[must_use]
    pub fn calls_for_retry(&self) -> bool {
        match self {
            Self::Conflict { .. } => true,
            Self::Database(error) => error.calls_for_retry(),
            Self::NotFound | Self::Kept { .. } | Self::Ambiguous { .. } => false,
        }
    }
}

impl Retryable for VersionError {
    fn calls_for_retry(&self) -> bool {
        Self::calls_for_retry(self)
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
            Self::Database(_) => f.write_str("the database refused the versioned update"),
        }
    }
}

impl std::error::Error for VersionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
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
