//! Time for the front in memory: nanoseconds of the system's monotonic clock, read cheaply where that
//! is enough.
//!
//! The exact clock waits for everything before it to be done (25 ns by itself, 60 and more behind a
//! look-up in a cache). The coarse one is a plain read and lags by a tick of the kernel, or by what a
//! virtual machine is held up.

use std::time::{Duration, Instant};

/// No lag of the coarse clock comes near this. Ends that are farther off are told by it alone.
const SLACK: u64 = 1_000_000_000;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use rustix::time::{ClockId, Timespec, clock_gettime};

    fn nanos(time: Timespec) -> u64 {
        let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
        seconds.unwrap_or(0).saturating_mul(1_000_000_000) + nanos.unwrap_or(0)
    }

    #[inline]
    pub(super) fn coarse() -> u64 {
        nanos(clock_gettime(ClockId::MonotonicCoarse))
    }

    pub(super) fn exact() -> u64 {
        nanos(clock_gettime(ClockId::Monotonic))
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use std::sync::LazyLock;
    use std::time::Instant;

    static START: LazyLock<Instant> = LazyLock::new(Instant::now);

    pub(super) fn exact() -> u64 {
        u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(super) fn coarse() -> u64 {
        exact()
    }
}

/// A moment after which something is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End(u64);

impl End {
    /// The same moment on this clock; at the latest `longest` from now.
    pub(super) fn of(end: Option<Instant>, longest: Duration) -> Self {
        // Read before the other clock: what passes in between makes it earlier.
        let now = system::exact();
        let left = end.map_or(longest, |end| {
            end.saturating_duration_since(Instant::now()).min(longest)
        });
        Self(now.saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The moment on the other clock.
    pub(super) fn instant(self) -> Option<Instant> {
        let now = Instant::now();
        let left = self.0.saturating_sub(system::exact());
        now.checked_add(Duration::from_nanos(left))
    }

    #[inline]
    pub(super) fn is_over(self) -> bool {
        system::coarse().saturating_add(SLACK) >= self.0 && self.is_over_exactly()
    }

    #[cold]
    fn is_over_exactly(self) -> bool {
        system::exact() >= self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_agree_on_an_end() {
        for left in [Duration::from_millis(30), Duration::from_secs(3600)] {
            let wanted = Instant::now() + left;
            let end = End::of(Some(wanted), Duration::from_secs(7200));
            assert!(!end.is_over());
            let back = end.instant().unwrap_or(wanted);
            assert!(back <= wanted && wanted - back < Duration::from_millis(20));
        }
        let capped = End::of(None, Duration::from_millis(20));
        std::thread::sleep(Duration::from_millis(21));
        assert!(capped.is_over());
        assert!(End::of(Some(Instant::now()), Duration::MAX).is_over());
    }
}
