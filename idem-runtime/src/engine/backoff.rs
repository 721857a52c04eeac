use std::time::Duration;

use tokio::time::Instant;

use crate::protocol::Owner;

/// Growing pauses with jitter, within a budget.
#[derive(Debug)]
pub(crate) struct Backoff {
    deadline: Option<Instant>,
    pause: Duration,
    longest: Duration,
    random: u64,
}

impl Backoff {
    /// Pauses from `first` to `longest`; no budget means that every pause is refused.
    pub(crate) fn new(budget: Option<Duration>, first: Duration, longest: Duration) -> Self {
        // Any number that differs between calls and processes serves for jitter.
        let random = Owner::fresh()
            .as_bytes()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            });
        Self {
            // A budget beyond what a clock can count is none that ends.
            deadline: budget.map(|budget| {
                Instant::now()
                    .checked_add(budget)
                    .unwrap_or_else(|| Instant::now() + Duration::from_secs(86_400 * 365))
            }),
            pause: first,
            longest,
            random,
        }
    }

    /// The time left; zero without a budget.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.map_or(Duration::ZERO, |at| {
            at.saturating_duration_since(Instant::now())
        })
    }

    /// The next pause: between half and all of the current one, cut to the budget. `None` when the
    /// budget is used up.
    pub(crate) fn next(&mut self) -> Option<Duration> {
        let left = self.left();
        if left.is_zero() {
            return None;
        }
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let half = self.pause / 2;
        let jitter = half.mul_f64((self.random >> 11) as f64 / (1u64 << 53) as f64);
        self.pause = (self.pause * 3 / 2).min(self.longest);
        Some((half + jitter).min(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_and_end_with_the_budget() {
        let mut backoff = Backoff::new(
            Some(Duration::from_secs(1)),
            Duration::from_millis(2),
            Duration::from_millis(50),
        );
        let (mut total, mut count) = (Duration::ZERO, 0);
        while let Some(pause) = backoff.next() {
            tokio::time::sleep(pause).await;
            (total, count) = (total + pause, count + 1);
            assert!(pause <= Duration::from_millis(50));
        }
        assert!(
            total <= Duration::from_millis(1100) && count > 10 && count < 200,
            "{total:?} {count}"
        );
    }

    #[tokio::test]
    async fn without_a_budget_there_is_no_pause() {
        assert_eq!(
            Backoff::new(None, Duration::from_millis(2), Duration::from_millis(9)).next(),
            None
        );
    }
}
