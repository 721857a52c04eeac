//! Run again what can be run again, for as long as it is worth it.

use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use idem::Retry;
use idem_examples::SplitMix64;

use crate::error::OrderError;

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
const BUDGET: Duration = Duration::from_secs(60);

/// Runs `attempt`, a whole transaction, until it succeeds, cannot succeed, or the budget is used
/// up.
pub(crate) async fn patiently<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, OrderError>
where
    F: Future<Output = Result<T, OrderError>>,
{
    let until = Instant::now() + BUDGET;
    let mut pauses = Pauses::new();
    loop {
        let error = match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let pause = match error.retry() {
            Retry::NewTransaction => pauses.next(None),
            Retry::Later(wait) => pauses.next(wait),
            _ => return Err(error),
        };
        if Instant::now() >= until {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
    }
}

/// Pauses that double, each spread so that callers who met do not meet again.
struct Pauses {
    pause: Duration,
    spread: SplitMix64,
}

impl Pauses {
    fn new() -> Self {
        Self {
            pause: FIRST_PAUSE,
            spread: SplitMix64::new(RandomState::new().hash_one(0)),
        }
    }

    /// As long as was asked for, or else longer than last time.
    fn next(&mut self, asked: Option<Duration>) -> Duration {
        let pause = asked.unwrap_or(self.pause).min(LONGEST_PAUSE);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        let micros = pause.as_micros() as u64;
        Duration::from_micros(self.spread.between(micros / 2, micros))
    }
}

#[cfg(test)]
mod tests {
    use idem::{Error, ErrorKind};

    use super::*;

    async fn attempts(kind: ErrorKind, fail: u32) -> (u32, Result<(), OrderError>) {
        let mut made = 0;
        let result = patiently(|| {
            made += 1;
            let result = if made <= fail {
                Err(Error::new(kind).into())
            } else {
                Ok(())
            };
            std::future::ready(result)
        })
        .await;
        (made, result)
    }

    #[tokio::test]
    async fn what_can_be_run_again_is() {
        let (made, result) = attempts(ErrorKind::RetryTransaction, 3).await;
        assert_eq!((made, result.is_ok()), (4, true));
        let (made, result) = attempts(ErrorKind::InProgress, 3).await;
        assert_eq!((made, result.is_ok()), (4, true));
        let (made, result) = attempts(ErrorKind::FingerprintMismatch, 3).await;
        assert_eq!((made, result.is_ok()), (1, false));
    }

    #[test]
    fn pauses_grow_up_to_a_bound_and_are_spread() {
        let mut pauses = Pauses::new();
        for bound in [2, 4, 8, 16, 32, 64, 128, 256, 500, 500] {
            let pause = pauses.next(None).as_millis();
            assert!(
                (bound / 2 - 1..=bound).contains(&pause),
                "{pause} of {bound}"
            );
        }
        let asked = pauses.next(Some(Duration::from_millis(10))).as_millis();
        assert!((5..=10).contains(&asked));
    }
}
