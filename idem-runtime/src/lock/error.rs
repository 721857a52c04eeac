//! Why a lock was not had, or a body under it gave no result.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::error::{Effect, Error, Retry};

/// Why a lock was not had, or not kept.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody else holds it. Nothing was done.
    #[non_exhaustive]
    Busy {
        /// The lock's name.
        name: String,
        /// The time until its lease ends, unless the holder renews it; `None` where that is not
        /// known (no lease, or somebody was about to ask).
        free_in: Option<Duration>,
    },
    /// It was held and is no longer, or may not be: somebody else may have had it meanwhile.
    Lost,
    /// The body that this runs in holds it already: waiting for it would never end.
    Reentrant,
    /// The store, or the database. Before the lock was had nothing was done; a lock whose release
    /// failed frees itself when its lease, or its session, ends.
    Failed(Error),
}

impl LockError {
    /// What it means for the effect that the lock is for.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::Busy { .. } | Self::Reentrant => Effect::None,
            Self::Lost => Effect::Unknown,
            Self::Failed(error) => error.effect(),
        }
    }

    /// Whether and how to try again.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Busy { free_in, .. } => Retry::Later(*free_in),
            Self::Lost => Retry::Later(None),
            Self::Reentrant => Retry::Never,
            Self::Failed(error) => error.retry(),
        }
    }

    /// Whether somebody else holds it.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy { .. })
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy {
                name,
                free_in: Some(free_in),
            } => write!(
                f,
                "the lock {name:?} is held, its lease ends in {free_in:?} (effect: none; try again \
                 later)"
            ),
            Self::Busy { name, .. } => write!(
                f,
                "the lock {name:?} is held (effect: none; try again later)"
            ),
            Self::Lost => f.write_str(
                "the lock was lost, somebody else may have had it (effect: unknown; look at what \
                 was written, and write under its fencing number)",
            ),
            Self::Reentrant => f.write_str(
                "the lock is held by the body that asks for it (effect: none; do not take it twice)",
            ),
            Self::Failed(error) => write!(f, "the lock's store: {error}"),
        }
    }
}

impl StdError for LockError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Busy { .. } | Self::Lost | Self::Reentrant => None,
        }
    }
}

impl From<Error> for LockError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Why a body under a lock gave no result that stands.
#[non_exhaustive]
pub enum RunError<T> {
    /// The lock was not had. The body did not run.
    NotAcquired(LockError),
    /// The lock was lost while the body ran.
    #[non_exhaustive]
    Lost {
        /// What the body gave, if it ran to its end and only its protection is in doubt; `None`:
        /// it was dropped at an await.
        output: Option<T>,
    },
}

impl<T> RunError<T> {
    /// What it means for the body's effect.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            // The body did not run.
            Self::NotAcquired(_) => Effect::None,
            Self::Lost { output: None } => Effect::Unknown,
            Self::Lost { output: Some(_) } => Effect::Done,
        }
    }

    /// Whether and how to try again. What was done under a lost lock is to be looked at first.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::NotAcquired(error) => error.retry(),
            Self::Lost { output: None } => Retry::Later(None),
            Self::Lost { output: Some(_) } => Retry::Never,
        }
    }

    /// The same as an error of the lock, without the output.
    #[must_use]
    pub fn into_lock_error(self) -> LockError {
        match self {
            Self::NotAcquired(error) => error,
            Self::Lost { .. } => LockError::Lost,
        }
    }
}

impl<T> From<LockError> for RunError<T> {
    fn from(error: LockError) -> Self {
        Self::NotAcquired(error)
    }
}

impl<T> fmt::Display for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAcquired(error) => error.fmt(f),
            Self::Lost { output: None } => f.write_str(
                "the lock was lost and the body was stopped midway (effect: unknown; look at what \
                 was written)",
            ),
            Self::Lost { output: Some(_) } => f.write_str(
                "the body ran to its end and the lock was lost meanwhile, somebody else may have \
                 had it (effect: done; look at what was written)",
            ),
        }
    }
}

impl<T> fmt::Debug for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAcquired(error) => f.debug_tuple("NotAcquired").field(error).finish(),
            Self::Lost { output } => f
                .debug_struct("Lost")
                .field("finished", &output.is_some())
                .finish(),
        }
    }
}

impl<T> StdError for RunError<T> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            // It is shown in full already.
            Self::NotAcquired(error) => error.source(),
            Self::Lost { .. } => None,
        }
    }
}
