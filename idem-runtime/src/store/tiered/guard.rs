use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::key::RecordId;
use crate::store::{Kept, Until};

use super::{Front, is_late};

/// How long a remote front is waited for, and when it is no longer asked.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Limits {
    time: Duration,
    failures: u32,
    pause: Duration,
}

impl Limits {
    /// 25 ms for each request; after five failures in a row it is left alone for half a second, then
    /// one request tries, and the pause doubles up to sixteen times that as long as it fails.
    pub const fn new() -> Self {
        Self {
            time: Duration::from_millis(25),
            failures: 5,
            pause: Duration::from_millis(500),
        }
    }

    /// How long one request may take.
    pub const fn time(mut self, limit: Duration) -> Self {
        self.time = limit;
        self
    }

    /// After how many failures in a row it is no longer asked.
    pub const fn failures(mut self, in_a_row: u32) -> Self {
        self.failures = in_a_row;
        self
    }

    /// For how long it is not asked at first.
    pub const fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new()
    }
}

/// A front that is asked only within its limits, and whose failures are nobody's.
#[derive(Clone, Debug)]
pub(super) struct Guarded<F> {
    front: F,
    breaker: Arc<Breaker>,
}

impl<F: Front> Guarded<F> {
    pub(super) fn new(front: F, limits: Limits) -> Self {
        Self {
            front,
            breaker: Arc::new(Breaker::new(limits)),
        }
    }

    pub(super) fn front(&self) -> &F {
        &self.front
    }

    #[inline]
    pub(super) async fn get(&self, id: RecordId) -> Option<Kept> {
        // Apart, so that a replay from memory does not move a future about.
        if !F::REMOTE {
            return self.front.get(id).await.ok().flatten();
        }
        self.within(self.front.get(id)).await.flatten()
    }

    pub(super) async fn get_to_copy(&self, id: RecordId) -> Option<(Kept, Until)> {
        let asked_at = Instant::now();
        let found = self.within(self.front.get_to_copy(id)).await.flatten();
        found.map(|(kept, until)| (kept, until.asked_at(asked_at)))
    }

    pub(super) async fn put(&self, id: RecordId, kept: &Kept, until: Until) {
        if !until.is_over() && !is_late(until) {
            let _ = self.within(self.front.put(id, kept, until)).await;
        }
    }

    /// `false`: it may still hold the copy.
    pub(super) async fn remove(&self, id: RecordId) -> bool {
        self.within(self.front.remove(id)).await.is_some()
    }

    #[inline]
    async fn within<T>(&self, request: impl Future<Output = Result<T, Error>>) -> Option<T> {
        if !F::REMOTE {
            return request.await.ok();
        }
        let attempt = self.breaker.admit(Instant::now())?;
        match tokio::time::timeout(self.breaker.limits.time, request).await {
            Ok(Ok(answer)) => {
                self.breaker.succeeded();
                Some(answer)
            }
            Ok(Err(error)) => {
                self.breaker.failed(attempt, Instant::now(), Some(&error));
                None
            }
            Err(_) => {
                self.breaker.failed(attempt, Instant::now(), None);
                None
            }
        }
    }
}

/// Counts failures in a row, and holds requests back.
#[derive(Debug)]
struct Breaker {
    limits: Limits,
    since: Instant,
    failures: AtomicU32,
    /// Until when nobody asks, in milliseconds since `since`; zero while everybody may.
    closed_until: AtomicU64,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    Ordinary,
    /// The one that finds out whether the front is back.
    Probe,
}

/// By how much the first pause may grow.
const MOST_DOUBLINGS: u32 = 4;

impl Breaker {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            since: Instant::now(),
            failures: AtomicU32::new(0),
            closed_until: AtomicU64::new(0),
        }
    }

    fn millis(&self, now: Instant) -> u64 {
        let millis = now.saturating_duration_since(self.since).as_millis();
        u64::try_from(millis).unwrap_or(u64::MAX)
    }

    /// Whether to ask. Of those who come after a pause one does; if it is dropped, the next one does
    /// after another pause.
    fn admit(&self, now: Instant) -> Option<Attempt> {
        let until = self.closed_until.load(Ordering::Relaxed);
        if until == 0 {
            return Some(Attempt::Ordinary);
        }
        let now = self.millis(now);
        if now < until {
            return None;
        }
        let next = now.saturating_add(self.pause());
        self.closed_until
            .compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed)
            .ok()
            .map(|_| Attempt::Probe)
    }

    /// The pause after the failures so far.
    fn pause(&self) -> u64 {
        let beyond = self
            .failures
            .load(Ordering::Relaxed)
            .saturating_sub(self.limits.failures);
        let pause = self.limits.pause * (1 << beyond.min(MOST_DOUBLINGS));
        u64::try_from(pause.as_millis()).unwrap_or(u64::MAX).max(1)
    }

    fn succeeded(&self) {
        if self.failures.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.failures.store(0, Ordering::Relaxed);
        if self.closed_until.swap(0, Ordering::Relaxed) != 0 {
            tracing::info!("the front answers again");
        }
    }

    fn failed(&self, attempt: Attempt, now: Instant, error: Option<&Error>) {
        let failures = self
            .failures
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        if attempt == Attempt::Ordinary && failures < self.limits.failures {
            return;
        }
        let pause = self.pause();
        let until = self.millis(now).saturating_add(pause).max(1);
        let before = self.closed_until.fetch_max(until, Ordering::Relaxed);
        if before == 0 {
            tracing::warn!(
                failures,
                pause_ms = pause,
                error = error.map(tracing::field::display),
                "the front does not answer and is left out"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(100);

    fn breaker() -> (Breaker, Instant) {
        let breaker = Breaker::new(Limits::new().failures(3).pause(PAUSE));
        let now = breaker.since + Duration::from_secs(1);
        (breaker, now)
    }

    #[test]
    fn failures_in_a_row_hold_everybody_back_and_one_probes() {
        let (breaker, now) = breaker();
        for _ in 0..2 {
            breaker.failed(Attempt::Ordinary, now, None);
        }
        breaker.succeeded();
        for _ in 0..2 {
            breaker.failed(Attempt::Ordinary, now, None);
            assert_eq!(breaker.admit(now), Some(Attempt::Ordinary), "not in a row");
        }
        breaker.failed(Attempt::Ordinary, now, None);
        assert_eq!(breaker.admit(now + PAUSE / 2), None);
        let later = now + PAUSE;
        assert_eq!(breaker.admit(later), Some(Attempt::Probe));
        assert_eq!(breaker.admit(later), None, "one is enough");
        breaker.failed(Attempt::Probe, later, None);
        assert_eq!(breaker.admit(later + PAUSE), None, "the pause has grown");
        assert_eq!(breaker.admit(later + PAUSE * 2), Some(Attempt::Probe));
        breaker.succeeded();
        assert_eq!(breaker.admit(later + PAUSE * 2), Some(Attempt::Ordinary));
    }

    #[test]
    fn a_probe_that_is_dropped_is_followed_by_another() {
        let (breaker, now) = breaker();
        for _ in 0..3 {
            breaker.failed(Attempt::Ordinary, now, None);
        }
        assert_eq!(breaker.admit(now + PAUSE), Some(Attempt::Probe));
        assert_eq!(breaker.admit(now + PAUSE * 2), Some(Attempt::Probe));
    }

    #[test]
    fn the_pause_stays_within_bounds() {
        let (breaker, now) = breaker();
        for _ in 0..1000 {
            breaker.failed(Attempt::Probe, now, None);
        }
        assert_eq!(breaker.pause(), 1600);
        assert_eq!(breaker.admit(now + PAUSE * 16), Some(Attempt::Probe));
    }
}
