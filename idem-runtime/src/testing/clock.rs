//! A clock that a test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, Moment};

/// A clock that stands still until it is moved. Clones move together.
///
/// ```
/// use std::time::Duration;
/// use idem_runtime::clock::Clock as _;
/// use idem_runtime::testing::clock::ManualClock;
///
/// let clock = ManualClock::new();
/// let fast = clock.skewed(300);
/// let start = clock.now();
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(start.until(clock.now()), Duration::from_secs(5));
/// assert_eq!(clock.now().until(fast.now()), Duration::from_millis(300));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    millis: Arc<AtomicU64>,
    skew: i64,
}

/// Some day in 2027: far from zero, so that a test may also go back.
const START: Moment = Moment::from_millis(1_800_000_000_000);

impl ManualClock {
    /// A clock at a fixed day.
    #[must_use]
    pub fn new() -> Self {
        Self::at(START)
    }

    /// A clock at a moment of the test's.
    #[must_use]
    pub fn at(moment: Moment) -> Self {
        Self {
            millis: Arc::new(AtomicU64::new(moment.as_millis())),
            skew: 0,
        }
    }

    /// Moves on; part of a millisecond counts as a whole one.
    pub fn advance(&self, time: Duration) {
        let move_on = |millis| Some(Moment::from_millis(millis).after(time).as_millis());
        let _ = self
            .millis
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, move_on);
    }

    /// Moves on to `moment`; a clock that is past it stays.
    pub fn advance_to(&self, moment: Moment) {
        self.millis.fetch_max(moment.as_millis(), Ordering::SeqCst);
    }

    /// Jumps to `moment`, back as well: what a machine's clock does when somebody sets it.
    pub fn set(&self, moment: Moment) {
        self.millis.store(moment.as_millis(), Ordering::SeqCst);
    }

    /// The same clock as seen by a machine that is this many milliseconds ahead, or behind if
    /// negative.
    #[must_use]
    pub fn skewed(&self, millis: i64) -> Self {
        Self {
            millis: Arc::clone(&self.millis),
            skew: self.skew.saturating_add(millis),
        }
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        let millis = self.millis.load(Ordering::SeqCst);
        Moment::from_millis(millis.saturating_add_signed(self.skew))
    }
}

/// The time of the tokio runtime, which a test may pause (`start_paused`): leases of the store and
/// waits of the framework then pass together, and at once.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    since: tokio::time::Instant,
}

impl TokioClock {
    /// A clock at the same fixed day as [`ManualClock::new`].
    #[must_use]
    pub fn new() -> Self {
        Self {
            since: tokio::time::Instant::now(),
        }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        let millis = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        Moment::from_millis(START.as_millis().saturating_add(millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advancing_never_goes_back_and_setting_may() {
        let clock = ManualClock::new();
        clock.advance_to(Moment::from_millis(5));
        assert_eq!(clock.now(), START);
        clock.set(Moment::from_millis(5));
        assert_eq!(clock.skewed(-9).now(), Moment::from_millis(0));
        clock.clone().advance(Duration::MAX);
        assert_eq!(clock.now(), Moment::from_millis(u64::MAX));
    }
}
