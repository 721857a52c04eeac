//! How often what failed is tried again, and when.

use std::time::Duration;

use crate::engine::Backoff;

/// How often a step, or a compensation, is tried again: a few times at once, then later by a worker,
/// and in the end not without a person.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Retries {
    at_once: u32,
    pauses: (Duration, Duration),
    later: (Duration, Duration),
    in_all: u32,
}

impl Default for Retries {
    /// Three attempts with pauses of 50 ms to 1 s; then one at a time, after 1 s, doubled up to 5 min;
    /// 20 in all, so that the last one is made 25 to 50 minutes after the first.
    fn default() -> Self {
        Self {
            at_once: 3,
            pauses: (Duration::from_millis(50), Duration::from_secs(1)),
            later: (Duration::from_secs(1), Duration::from_secs(300)),
            in_all: 20,
        }
    }
}

impl Retries {
    /// So many attempts follow each other at once, the first one included, before the saga is left to a
    /// worker; at least one is made.
    #[must_use]
    pub fn at_once(mut self, attempts: u32) -> Self {
        self.at_once = attempts;
        self
    }

    /// The pauses between them grow from `first` to `longest`; each is shortened by up to half at
    /// random.
    #[must_use]
    pub fn pauses(mut self, first: Duration, longest: Duration) -> Self {
        self.pauses = (first, longest);
        self
    }

    /// When the attempts at once are used up the saga is left to a [`Worker`](super::Worker), which makes
    /// one attempt at a time: after `first`, doubled each time up to `longest`, likewise shortened. How
    /// many were made is kept with the step, so that the pauses grow from process to process.
    #[must_use]
    pub fn later(mut self, first: Duration, longest: Duration) -> Self {
        self.later = (first, longest);
        self
    }

    /// After so many attempts the saga is stuck and needs a person
    /// ([`Saga::retry_stuck`](super::Saga::retry_stuck)). An attempt whose process did not survive it,
    /// or whose future was dropped, counts as well. A transactional step that the database gave up for
    /// a deadlock or a serialization failure is run again at once and does not count, for ten seconds
    /// at a time.
    #[must_use]
    pub fn in_all(mut self, attempts: u32) -> Self {
        self.in_all = attempts;
        self
    }

    /// Whether so many attempts leave no other one. One is made in any case.
    pub(super) fn are_used_up(&self, all: u32) -> bool {
        all >= self.in_all.max(1)
    }

    /// What follows an attempt that failed and may be repeated: `all` of them count.
    pub(super) fn after(&self, all: u32) -> Then {
        if self.are_used_up(all) {
            return Then::Stuck;
        }
        if all < self.at_once {
            let (first, longest) = self.pauses;
            return Then::Again(jittered(doubled(first, all.saturating_sub(1), longest)));
        }
        let (first, longest) = self.later;
        let times = all - self.at_once.max(1).min(all);
        Then::Later(jittered(doubled(first, times, longest)))
    }
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Again(Duration),
    Later(Duration),
    Stuck,
}

fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    let factor = 2_u32.saturating_pow(times.min(30));
    first.saturating_mul(factor).min(longest)
}

fn jittered(pause: Duration) -> Duration {
    let mut pauses = Backoff::new(Some(Duration::MAX), pause, pause);
    pauses.next().unwrap_or(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_few_at_once_then_later_then_a_person() {
        let retries = Retries::default()
            .at_once(2)
            .pauses(Duration::from_millis(10), Duration::from_millis(10))
            .later(Duration::from_secs(1), Duration::from_secs(3))
            .in_all(7);
        let within = |then, least: u64, most: u64| match then {
            Then::Again(pause) | Then::Later(pause) => {
                let millis = Duration::from_millis(least)..=Duration::from_millis(most);
                assert!(millis.contains(&pause), "{pause:?}");
            }
            Then::Stuck => panic!("stuck"),
        };
        assert!(matches!(retries.after(1), Then::Again(_)));
        within(retries.after(1), 5, 10);
        assert!(matches!(retries.after(2), Then::Later(_)));
        within(retries.after(2), 500, 1000);
        within(retries.after(3), 1000, 2000);
        within(retries.after(4), 1500, 3000);
        assert_eq!(retries.after(7), Then::Stuck);
    }

    #[tokio::test]
    async fn the_default_outlasts_half_an_hour_of_an_outage() {
        let retries = Retries::default();
        let mut longest = Duration::ZERO;
        for made in 1..20 {
            match retries.after(made) {
                Then::Again(pause) => assert!(made < 3 && pause <= Duration::from_secs(1)),
                Then::Later(pause) => {
                    assert!(made >= 3);
                    let full = Duration::from_secs(1 << (made - 3).min(9));
                    let full = full.min(Duration::from_secs(300));
                    assert!(pause >= full / 2 && pause <= full, "{made}: {pause:?}");
                    longest += full;
                }
                Then::Stuck => panic!("stuck after {made}"),
            }
        }
        assert_eq!(retries.after(20), Then::Stuck);
        assert_eq!(longest, Duration::from_secs(511 + 8 * 300));
    }

    #[tokio::test]
    async fn no_number_of_attempts_overflows() {
        let retries = Retries::default().at_once(0).in_all(u32::MAX);
        assert!(matches!(retries.after(u32::MAX - 1), Then::Later(_)));
        assert!(matches!(retries.after(0), Then::Later(_)));
    }
}
