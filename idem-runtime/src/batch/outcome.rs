use std::fmt;

use crate::error::{Error, ErrorKind};
use crate::observe::Observed;

/// What became of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Outcome<T, E> {
    /// It ran in this batch.
    New(T),
    /// It was done before, in an earlier batch, outside of any, or by an earlier entry of this one.
    Replayed(T),
    /// Its key is known with another payload: nothing was done for this entry.
    Mismatch(E),
    /// It failed, or was refused for another reason; ask the error.
    Failed(E),
}

impl<T, E> Outcome<T, E> {
    pub(super) fn of(answer: Result<T, E>, seen: &Observed) -> Self {
        match answer {
            Ok(value) if seen.replayed() => Self::Replayed(value),
            Ok(value) => Self::New(value),
            Err(error) if seen.refusal() == Some(ErrorKind::FingerprintMismatch) => {
                Self::Mismatch(error)
            }
            Err(error) => Self::Failed(error),
        }
    }

    /// The value, if it is done.
    #[must_use]
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::New(value) | Self::Replayed(value) => Some(value),
            Self::Mismatch(_) | Self::Failed(_) => None,
        }
    }

    /// Whether it is done, now or before.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.value().is_some()
    }

    /// The function's answer, whether new or not.
    ///
    /// # Errors
    /// The function's.
    pub fn into_result(self) -> Result<T, E> {
        match self {
            Self::New(value) | Self::Replayed(value) => Ok(value),
            Self::Mismatch(error) | Self::Failed(error) => Err(error),
        }
    }
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "items may have failed"]
#[non_exhaustive]
pub struct Report<T, E> {
    /// One outcome for each item, in the order of the items.
    pub outcomes: Vec<Outcome<T, E>>,
}

impl<T, E> Report<T, E> {
    /// Whether every item is done. Only then is the batch; send it again until it is.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.outcomes.iter().all(Outcome::is_done)
    }

    /// The items that are not done, by their positions.
    pub fn unfinished(&self) -> impl Iterator<Item = (usize, &Outcome<T, E>)> {
        let numbered = self.outcomes.iter().enumerate();
        numbered.filter(|(_, outcome)| !outcome.is_done())
    }
}

/// Why nothing of a batch in one transaction is done.
#[derive(Debug)]
#[non_exhaustive]
pub enum BatchError<E> {
    /// The batch itself: its key is known with another list, a key is too long, its record or the
    /// commit failed. The error says what it means for the effect.
    Batch(Error),
    /// An item failed, and everything goes with it.
    #[non_exhaustive]
    Item {
        /// Its position, counted from 0.
        index: usize,
        /// Whether its key is known with another payload.
        mismatch: bool,
        /// Its error.
        error: E,
    },
}

impl<E> BatchError<E> {
    /// The function's error, as it would be without a batch.
    pub fn into_error(self) -> E
    where
        E: From<Error>,
    {
        match self {
            Self::Batch(error) => error.into(),
            Self::Item { error, .. } => error,
        }
    }
}

impl<E> From<Error> for BatchError<E> {
    fn from(error: Error) -> Self {
        Self::Batch(error)
    }
}

impl<E: fmt::Display> fmt::Display for BatchError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch(error) => error.fmt(f),
            Self::Item { index, error, .. } => {
                write!(
                    f,
                    "item {index} of the batch failed, nothing is done: {error}"
                )
            }
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for BatchError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Batch(error) => error.source(),
            Self::Item { error, .. } => Some(error),
        }
    }
}

#[cfg(feature = "_sqlx")]
impl<E: crate::retry::Retryable> crate::retry::Retryable for BatchError<E> {
    fn calls_for_retry(&self) -> bool {
        match self {
            Self::Batch(error) => error.calls_for_retry(),
            Self::Item { error, .. } => error.calls_for_retry(),
        }
    }
}
