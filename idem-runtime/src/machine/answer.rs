//! What came of a transition.

use std::error::Error as StdError;
use std::fmt;

use super::State;
use crate::error::{Effect, Error, ErrorKind, Retry};

/// What came of a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "only `Applied` means that this call changed the state"]
#[non_exhaustive]
pub enum Transitioned<S> {
    /// This call changed the state.
    #[non_exhaustive]
    Applied {
        /// What it was before, where only one state may go to the new one.
        from: Option<S>,
    },
    /// The row was in that state already.
    AlreadyThere,
    /// The row has been in that state before and has gone on: a late repeat of what is done.
    ///
    /// Decided by the declared transitions, for a row that began in the initial state: every way from
    /// there to the row's state leads through the wanted one, and none leads back to it. What the row
    /// only *may* have been in is [`Refused`](Self::Refused).
    #[non_exhaustive]
    Passed {
        /// The state that the row is in.
        current: S,
    },
    /// No transition leads there from the state that the row is in, and it is not certain that the
    /// row has been there.
    #[non_exhaustive]
    Refused {
        /// The state that the row is in.
        current: S,
    },
    /// There is no such row.
    NotFound,
}

impl<S> Transitioned<S> {
    /// Whether this call changed the state.
    #[must_use]
    pub const fn is_applied(&self) -> bool {
        matches!(self, Self::Applied { .. })
    }
}

/// Whether a required state was reached now or before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "what follows from the transition belongs to `Now` alone"]
#[allow(clippy::exhaustive_enums)] // a third answer would be a wrong one
pub enum Progress {
    /// By this call: what follows from the transition is to be done.
    Now,
    /// By an earlier call: it has been done. The row is in that state, or has gone on from there.
    Before,
}

impl Progress {
    /// Whether this call made the transition.
    #[must_use]
    pub const fn is_now(self) -> bool {
        matches!(self, Self::Now)
    }
}

/// Why a required state was not reached. Nothing was changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum RequireError<S> {
    /// No transition leads there from the state that the row is in.
    #[non_exhaustive]
    Refused {
        /// The state that the row is in.
        current: S,
        /// The state that was required.
        wanted: S,
    },
    /// There is no such row.
    #[non_exhaustive]
    NotFound {
        /// The state that was required.
        wanted: S,
    },
    /// The database failed, or what it holds cannot be read.
    Failed(Error),
}

impl<S: State> RequireError<S> {
    /// The state that the row is in, where that is why.
    #[must_use]
    pub fn current(&self) -> Option<S> {
        match self {
            Self::Refused { current, .. } => Some(*current),
            Self::NotFound { .. } | Self::Failed(_) => None,
        }
    }

    /// What it means for the transition: [`Effect::None`] where nothing of it remains.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::Refused { .. } | Self::NotFound { .. } => Effect::None,
            Self::Failed(error) => error.effect(),
        }
    }

    /// Whether and how to repeat the call. A refusal is final.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Refused { .. } | Self::NotFound { .. } => Retry::Never,
            Self::Failed(error) => error.retry(),
        }
    }

    /// The kind of the failure; `None` for a refusal.
    #[must_use]
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Refused { .. } | Self::NotFound { .. } => None,
            Self::Failed(error) => Some(error.kind()),
        }
    }
}

impl<S: State> fmt::Display for RequireError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { current, wanted } => write!(
                f,
                "`{}` cannot become `{}`: that is allowed from ",
                current.as_str(),
                wanted.as_str()
            )
            .and_then(|()| sources(*wanted, f)),
            Self::NotFound { wanted } => {
                write!(f, "there is no row that could become `{}`", wanted.as_str())
            }
            Self::Failed(error) => error.fmt(f),
        }
    }
}

fn sources<S: State>(wanted: S, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match wanted.sources() {
        [] => f.write_str("no state"),
        [first, rest @ ..] => {
            write!(f, "`{}`", first.as_str())?;
            rest.iter()
                .try_for_each(|state| write!(f, ", `{}`", state.as_str()))
        }
    }
}

impl<S: State> StdError for RequireError<S> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            // It is shown in full already, and is still to be found in the chain.
            Self::Failed(error) => Some(error),
            Self::Refused { .. } | Self::NotFound { .. } => None,
        }
    }
}

impl<S> From<Error> for RequireError<S> {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
