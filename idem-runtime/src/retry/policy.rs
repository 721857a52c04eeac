//! How often, for how long and with which pauses.

use std::time::Duration;

use crate::engine::Backoff;

/// How often, and for how long, a transaction is run again.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RetryPolicy {
    pub(super) attempts: u32,
    budget: Duration,
    first_pause: Duration,
    longest_pause: Duration,
}

impl Default for RetryPolicy {
    /// At most ten attempts, begun within five seconds; pauses of 2 to 200 ms with jitter.
    fn default() -> Self {
        Self {
            attempts: 10,
            budget: Duration::from_secs(5),
            first_pause: Duration::from_millis(2),
            longest_pause: Duration::from_millis(200),
        }
    }
}

impl RetryPolicy {
    /// At most so many attempts, the first one included; at least one is made.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Begins no attempt later than this after the first one. An attempt that runs is not ended.
    #[must_use]
    pub fn budget(mut self, budget: Duration) -> Self {
        self.budget = budget;
        self
    }

    /// The pauses grow from `first` to `longest`; each is shortened by up to half at random.
    #[must_use]
    pub fn pauses(mut self, first: Duration, longest: Duration) -> Self {
        self.first_pause = first;
        self.longest_pause = longest;
        self
    }

    pub(super) fn begin(&self) -> Backoff {
        Backoff::new(Some(self.budget), self.first_pause, self.longest_pause)
    }
}
