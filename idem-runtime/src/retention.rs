//! Retention (`ttl`): how long an outcome is kept and replayed.

use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// The longest finite retention, the same for every store: 36500 days.
pub const MAX_RETENTION: Duration = Duration::from_secs(36_500 * 86_400);

/// How long an outcome is kept, counted by the store's clock from the moment it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention(Option<u64>);

impl Retention {
    /// Until it is forgotten by hand.
    pub const FOREVER: Self = Self(None);

    /// # Errors
    /// [`ErrorKind::InvalidTtl`] for less than a millisecond and for more than [`MAX_RETENTION`].
    pub fn new(ttl: Duration) -> Result<Self, Error> {
        let millis = ttl.as_millis();
        if millis == 0 || ttl > MAX_RETENTION {
            return Err(Error::new(ErrorKind::InvalidTtl).detail(format!("ttl is {ttl:?}")));
        }
        Ok(Self(u64::try_from(millis).ok()))
    }

    pub(crate) const fn from_millis_unchecked(millis: u64) -> Self {
        Self(Some(millis))
    }

    /// Milliseconds, `None` for ever.
    #[must_use]
    pub const fn millis(self) -> Option<u64> {
        self.0
    }
}

/// How long an outcome is still kept, for what keeps a copy of it: a copy must not outlive its
/// record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Left {
    /// This long from the moment the store looked.
    For(Duration),
    /// Until it is forgotten by hand.
    Forever,
    /// The store does not tell: it must not be copied.
    Unknown,
}

impl From<Option<Duration>> for Left {
    /// `None`: it is kept for ever.
    fn from(left: Option<Duration>) -> Self {
        left.map_or(Self::Forever, Self::For)
    }
}
