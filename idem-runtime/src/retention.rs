//! Retention (`ttl`): how long an outcome is kept and replayed, and its key known afterwards.

use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// The longest finite retention, the same for every store: 36500 days.
pub const MAX_RETENTION: Duration = Duration::from_secs(36_500 * 86_400);

/// How long an outcome is kept, counted by the store's clock from the moment it is recorded, and how
/// long its key stays known after that.
///
/// ```
/// use std::time::Duration;
/// use idem_runtime::retention::Retention;
///
/// # fn main() -> Result<(), idem_runtime::Error> {
/// const DAY: Duration = Duration::from_secs(86_400);
/// let retention = Retention::new(7 * DAY)?.with_tombstone(30 * DAY)?;
/// assert_eq!(retention.millis(), Some(7 * 86_400_000));
/// assert_eq!(retention.known_millis(), Some(37 * 86_400_000));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    outcome: Option<u64>,
    tombstone: Tombstone,
}

/// How long a key is known after its outcome is dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tombstone {
    /// Not at all.
    #[default]
    None,
    Millis(u64),
    Forever,
}

impl Retention {
    /// Until it is forgotten by hand.
    pub const FOREVER: Self = Self {
        outcome: None,
        tombstone: Tombstone::None,
    };

    /// # Errors
    /// [`ErrorKind::InvalidTtl`] for less than a millisecond and for more than [`MAX_RETENTION`].
    pub fn new(ttl: Duration) -> Result<Self, Error> {
        Ok(Self::from_millis_unchecked(millis(ttl, "ttl")?))
    }

    /// The key stays known for `period` after the outcome is dropped: a repeat is then refused with
    /// [`ErrorKind::OutcomeGone`] and does not run.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_tombstone(self, period: Duration) -> Result<Self, Error> {
        Ok(self.and(Tombstone::Millis(millis(period, "tombstone")?)))
    }

    /// The key stays known until it is forgotten by hand.
    #[must_use]
    pub const fn with_tombstone_forever(self) -> Self {
        self.and(Tombstone::Forever)
    }

    pub(crate) const fn from_millis_unchecked(millis: u64) -> Self {
        Self {
            outcome: Some(millis),
            tombstone: Tombstone::None,
        }
    }

    pub(crate) const fn and(self, tombstone: Tombstone) -> Self {
        Self { tombstone, ..self }
    }

    /// Milliseconds for which the outcome is kept, `None` for ever.
    #[must_use]
    pub const fn millis(self) -> Option<u64> {
        self.outcome
    }

    /// Milliseconds for which the key is known, `None` for ever: at least as long as the outcome.
    #[must_use]
    pub const fn known_millis(self) -> Option<u64> {
        match (self.outcome, self.tombstone) {
            (None, _) | (_, Tombstone::Forever) => None,
            (Some(outcome), Tombstone::None) => Some(outcome),
            (Some(outcome), Tombstone::Millis(more)) => Some(outcome.saturating_add(more)),
        }
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

fn millis(time: Duration, name: &str) -> Result<u64, Error> {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 || time > MAX_RETENTION {
        return Err(Error::new(ErrorKind::InvalidTtl).detail(format!("{name} is {time:?}")));
    }
    Ok(millis)
}
