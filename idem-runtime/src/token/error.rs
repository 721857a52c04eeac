//! Why a token is refused.

use std::fmt;

use crate::error::{Effect, Error, ErrorKind, Retry};

/// A token that was not accepted, or a store that could not be asked.
///
/// `Display` tells the two apart and nothing else: a caller must not learn whether a token ever
/// existed, whose it is, or that somebody else was faster. `Debug` and [`TokenError::reason`] are for
/// the log.
#[derive(Debug)]
pub struct TokenError(Kind);

#[derive(Debug)]
enum Kind {
    Refused(Reason),
    Store(Error),
}

/// Why a token is refused. For logs and counters, not for callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// It has not the form of a token, or that of another kind of token.
    Malformed,
    /// Nobody here has issued it: no such row, no such key, or a signature that is not right.
    Unknown,
    /// It belongs to another subject or another operation.
    Foreign,
    /// Its time is over.
    Expired,
    /// It has been used.
    Used,
    /// A call that is still running holds it ([`MemoryTokens`](super::MemoryTokens), `RedisTokens`; a
    /// database waits for the end of that call's transaction instead).
    InUse,
}

impl TokenError {
    pub(super) fn store(error: Error) -> Self {
        Self(Kind::Store(error))
    }

    /// Why the token is refused; `None` if the store could not be asked.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        match &self.0 {
            Kind::Refused(reason) => Some(*reason),
            Kind::Store(_) => None,
        }
    }

    /// The error of the store, if it could not be asked.
    #[must_use]
    pub fn store_error(&self) -> Option<&Error> {
        match &self.0 {
            Kind::Refused(_) => None,
            Kind::Store(error) => Some(error),
        }
    }

    /// What it means for the token: [`Effect::None`], it was not used by this call; unless its store's
    /// answer was lost.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match &self.0 {
            Kind::Refused(_) => Effect::None,
            Kind::Store(error) => error.effect(),
        }
    }

    /// Whether and how to repeat the call with the same token.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match &self.0 {
            Kind::Refused(Reason::InUse) => Retry::Later(None),
            Kind::Refused(_) => Retry::Never,
            Kind::Store(error) => error.retry(),
        }
    }

    /// What to tell the caller: the same for every reason.
    #[must_use]
    pub fn public(&self) -> &'static str {
        match &self.0 {
            Kind::Refused(_) => "the token is not valid",
            // Only whoever issues tokens can meet these.
            Kind::Store(error) if error.kind() == ErrorKind::InvalidTtl => {
                "a token cannot be issued with this lifetime"
            }
            Kind::Store(error) if error.kind() == ErrorKind::StoreExhausted => {
                "there is no room for another token"
            }
            Kind::Store(_) => "tokens cannot be used now",
        }
    }
}

impl From<Reason> for TokenError {
    fn from(reason: Reason) -> Self {
        Self(Kind::Refused(reason))
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.public())
    }
}

impl std::error::Error for TokenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            Kind::Refused(_) => None,
            Kind::Store(error) => Some(error),
        }
    }
}

#[cfg(feature = "_sqlx")]
impl crate::retry::Retryable for TokenError {
    fn calls_for_retry(&self) -> bool {
        let store = self.store_error();
        store.is_some_and(crate::retry::Retryable::calls_for_retry)
    }
}
