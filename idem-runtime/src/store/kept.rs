use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::clock::Moment;
use crate::fingerprint::Fingerprint;
use crate::retention::{Left, Retention};

/// The outcome of a completed call, as a copy of its record holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// The payload's digest.
    pub fingerprint: Fingerprint,
    /// The envelope.
    pub outcome: Bytes,
    /// When it was recorded, by the clock of the store of the record; not always known.
    pub recorded_at: Option<Moment>,
}

impl Kept {
    /// A copy of a record.
    #[must_use]
    pub fn new(fingerprint: Fingerprint, outcome: Bytes, recorded_at: Option<Moment>) -> Self {
        Self {
            fingerprint,
            outcome,
            recorded_at,
        }
    }
}

/// Until when a copy of a record may be answered from, by this process's monotonic clock.
///
/// The record's own end is known by the store's clock only. Counted from the moment before the store
/// was asked, the time that it said was left ends here no later than there.
///
/// It also says when the store was asked: a front refuses a copy that was read so long ago that the
/// record may have been forgotten since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Until {
    end: Option<Instant>,
    asked_at: Option<Instant>,
}

/// What the coarsest clock of a store may round away.
const ROUNDED: Duration = Duration::from_millis(1);

impl Until {
    /// Until it is removed.
    pub const FOREVER: Self = Self {
        end: None,
        asked_at: None,
    };

    /// Until this moment.
    #[must_use]
    pub const fn at(end: Instant) -> Self {
        Self {
            end: Some(end),
            asked_at: None,
        }
    }

    /// The same end of a record that was asked for at `asked_at`.
    #[must_use]
    pub const fn asked_at(self, asked_at: Instant) -> Self {
        Self {
            end: self.end,
            asked_at: Some(asked_at),
        }
    }

    /// How long ago the record was asked for; `None` where nobody said.
    #[must_use]
    pub fn asked_ago(self) -> Option<Duration> {
        self.asked_at.map(|at| at.elapsed())
    }

    /// The end of a record that was asked for at `asked_at`; `None` if it is not known.
    #[must_use]
    pub fn of(asked_at: Instant, left: Left) -> Option<Self> {
        match left {
            Left::For(left) => Some(Self::after(asked_at, left)),
            Left::Forever => Some(Self::FOREVER.asked_at(asked_at)),
            Left::Unknown => None,
        }
    }

    /// The end of a record whose recording was asked for at `asked_at`.
    #[must_use]
    pub fn recorded(asked_at: Instant, retention: Retention) -> Self {
        match retention.millis() {
            Some(millis) => Self::after(asked_at, Duration::from_millis(millis)),
            None => Self::FOREVER.asked_at(asked_at),
        }
    }

    /// The same for a database's own reckoning; negative is over, `None` has no end.
    #[cfg(feature = "_sqlx")]
    pub(crate) fn left_micros(asked_at: Instant, left: Option<i64>) -> Self {
        left.map_or(Self::FOREVER.asked_at(asked_at), |micros| {
            let left = Duration::from_micros(u64::try_from(micros).unwrap_or(0));
            Self::after(asked_at, left)
        })
    }

    fn after(asked_at: Instant, left: Duration) -> Self {
        Self {
            // Beyond what this clock can count nothing ends while this process runs.
            end: asked_at.checked_add(left.saturating_sub(ROUNDED)),
            asked_at: Some(asked_at),
        }
    }

    /// The moment, if there is one.
    #[must_use]
    pub const fn instant(self) -> Option<Instant> {
        self.end
    }

    /// Whether that is past.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.end.is_some_and(|end| end <= Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_ends_before_its_record() {
        let asked = Instant::now();
        let end = Until::of(asked, Left::For(Duration::from_secs(5)));
        let end = end.and_then(Until::instant);
        assert!(end.is_some_and(|end| end < asked + Duration::from_secs(5)));
        assert_eq!(Until::of(asked, Left::Unknown), None);
        assert!(Until::of(asked, Left::For(Duration::ZERO)).is_some_and(Until::is_over));
        assert_eq!(
            Until::of(asked, Left::For(Duration::MAX)),
            Some(Until::FOREVER.asked_at(asked))
        );
    }
}
