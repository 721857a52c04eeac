//! Records in this process: for trying things out, for tests, and for effects that no other process
//! can repeat. The reference for what a [`Store`] does.
//!
//! Nothing survives the process, and no other process sees it.

mod shard;

use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use bytes::Bytes;

use super::{Held, Request, Reservation, Reserved, Store, Stored};
use crate::clock::{Clock, Moment, SharedClock, SteadyClock};
use crate::error::{Error, ErrorKind};
use crate::key::RecordId;
use crate::protocol::{Decision, Event, apply, decide};
use crate::retention::Retention;
use shard::{Due, Records, Shard};

const SHARDS: usize = 64;

/// How many records a store holds unless it is told otherwise.
pub const DEFAULT_CAPACITY: usize = 1_000_000;

/// How many bytes its records take unless it is told otherwise.
pub const DEFAULT_BYTES: usize = 1 << 30;

/// How long a reservation is remembered after its lease has ended, unless it is told otherwise.
pub const DEFAULT_ABANDONED_FOR: Duration = Duration::from_secs(86_400);

/// A store in this process.
///
/// It is bounded by records and by bytes: when it is full of records that are not over, new keys are
/// refused with [`ErrorKind::StoreExhausted`], at a cost that does not grow with the store. No outcome
/// is ever dropped before its time to make room. A reservation whose lease has ended without an outcome
/// (its call was dropped) makes room, the one that ended first before others, unless it is held until
/// somebody decides; nobody knows then that the key was ever used. A call that runs records its
/// outcome above the limit.
///
/// ```
/// use idem_runtime::store::memory::MemoryStore;
///
/// let store = MemoryStore::new();
/// assert_eq!(store.len(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct MemoryStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shards: Vec<Shard>,
    count: AtomicUsize,
    bytes: AtomicUsize,
    capacity: usize,
    most_bytes: usize,
    abandoned_for: Duration,
    namespace: String,
    fence: AtomicU64,
    clock: SharedClock,
}

/// How a [`MemoryStore`] is made.
#[derive(Debug)]
#[must_use]
pub struct Builder {
    capacity: usize,
    bytes: usize,
    abandoned_for: Duration,
    namespace: String,
    clock: SharedClock,
}

impl Builder {
    /// The most records it holds.
    pub fn capacity(mut self, records: usize) -> Self {
        self.capacity = records;
        self
    }

    /// The most bytes its records take, by and large: outcomes, texts, and what each entry costs.
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// How long a reservation is remembered after its lease has ended without an outcome, while there
    /// is room: it may be taken over all that time, and its late owner can still complete it. One that
    /// is held until somebody decides stays.
    pub fn abandoned_for(mut self, time: Duration) -> Self {
        self.abandoned_for = time;
        self
    }

    /// Part of every record's id.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Another clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = SharedClock::new(clock);
        self
    }

    /// The store.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        MemoryStore {
            inner: Arc::new(Inner {
                shards: std::iter::repeat_with(Shard::default)
                    .take(SHARDS)
                    .collect(),
                count: AtomicUsize::new(0),
                bytes: AtomicUsize::new(0),
                capacity: self.capacity,
                most_bytes: self.bytes,
                abandoned_for: self.abandoned_for,
                namespace: self.namespace,
                fence: AtomicU64::new(1),
                clock: self.clock,
            }),
        }
    }
}

impl MemoryStore {
    /// An empty store with the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A store made to measure.
    pub fn builder() -> Builder {
        Builder {
            capacity: DEFAULT_CAPACITY,
            bytes: DEFAULT_BYTES,
            abandoned_for: DEFAULT_ABANDONED_FOR,
            namespace: String::new(),
            clock: SharedClock::new(SteadyClock::new()),
        }
    }

    /// How many records it holds, those that are over but not purged included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.count.load(Ordering::Relaxed)
    }

    /// How many bytes they take, by and large.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.inner.bytes.load(Ordering::Relaxed)
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard(&self, id: RecordId) -> &Shard {
        // The id is a digest: any of its bytes spreads evenly.
        &self.inner.shards[usize::from(id.as_bytes()[15]) % SHARDS]
    }

    fn now(&self) -> Moment {
        self.inner.clock.now()
    }

    /// A shard's records as they count at `now`: without those that nobody remembers any more.
    fn records<'a>(&self, shard: &'a Shard, id: RecordId) -> (MutexGuard<'a, Records>, Moment) {
        let mut records = shard.lock();
        let now = self.now();
        let forgotten = records.get(id).is_some_and(|stored| {
            shard::forgotten_at(&stored.record, self.inner.abandoned_for)
                .is_some_and(|at| at <= now)
        });
        if forgotten {
            self.counted(&mut records, |records| records.remove(id));
        }
        (records, now)
    }

    /// Changes a shard, and counts what that changed.
    fn counted<T>(&self, records: &mut Records, change: impl FnOnce(&mut Records) -> T) -> T {
        let (count, bytes) = (records.len(), records.bytes());
        let done = change(records);
        let moved = |total: &AtomicUsize, before: usize, after: usize| {
            // Wraps as the counter does: only the sum counts.
            total.fetch_add(after.wrapping_sub(before), Ordering::Relaxed)
        };
        moved(&self.inner.count, count, records.len());
        moved(&self.inner.bytes, bytes, records.bytes());
        done
    }

    /// Applies an event of a reservation; wakes who waits for the record.
    fn step(&self, reservation: &Reservation, event: impl FnOnce(Moment) -> Event) -> Held {
        let shard = self.shard(reservation.id);
        let (mut records, now) = self.records(shard, reservation.id);
        let Some(stored) = records.get(reservation.id) else {
            return Held::No;
        };
        match apply(Some(&stored.record), event(now), now) {
            Ok(Some(record)) => self.counted(&mut records, |records| {
                records.change(reservation.id, |stored| stored.record = record);
            }),
            Ok(None) => self.counted(&mut records, |records| records.remove(reservation.id)),
            Err(_) => return Held::No,
        }
        drop(records);
        shard.changed.notify_waiters();
        Held::Yes
    }

    fn is_full(&self) -> bool {
        self.len() > self.inner.capacity || self.bytes() >= self.inner.most_bytes
    }

    /// Takes the place of a new record, where there is none by dropping some that are over, and then
    /// reservations whose lease has ended. Looks at nothing that is not due.
    fn take_place(&self) -> Result<Place<'_>, Error> {
        self.inner.count.fetch_add(1, Ordering::Relaxed);
        let place = Place(&self.inner.count);
        for due in [Due::Over(self.inner.abandoned_for), Due::Lapsed] {
            if !self.is_full() {
                return Ok(place);
            }
            // Others may be at the same: what counts is that there is room, not who made it.
            let now = self.now();
            for shard in &self.inner.shards {
                let mut records = shard.lock();
                self.counted(&mut records, |records| {
                    records.drop_due(now, due, usize::MAX)
                });
            }
        }
        if !self.is_full() {
            return Ok(place);
        }
        Err(Error::new(ErrorKind::StoreExhausted).detail(format!(
            "the memory store is full ({} records of {}, {} bytes of {})",
            self.len().saturating_sub(1),
            self.inner.capacity,
            self.bytes(),
            self.inner.most_bytes
        )))
    }

    /// Drops what is over, whole records or their outcomes: says of how many.
    fn purge_now(&self, limit: usize) -> usize {
        let now = self.now();
        let mut done = 0;
        for shard in &self.inner.shards {
            let mut records = shard.lock();
            let due = Due::Over(self.inner.abandoned_for);
            done += self.counted(&mut records, |records| {
                records.drop_due(now, due, limit - done)
            });
            if done == limit {
                break;
            }
        }
        done
    }

    fn reserve_now(&self, request: &Request<'_>) -> Result<Reserved, Error> {
        let shard = self.shard(request.id);
        let known = shard.lock().get(request.id).is_some();
        // Outside the shard's lock: making room locks every shard.
        let _place = match known {
            true => None,
            false => Some(self.take_place()?),
        };
        let (mut records, now) = self.records(shard, request.id);
        let floor = self.inner.fence.fetch_add(1, Ordering::Relaxed);
        let decision = decide(
            records.get(request.id).map(|stored| &stored.record),
            request.owner,
            request.fingerprint,
            floor,
            now,
        );
        if let Decision::Grant(fence) = decision {
            let stored = Stored::reserved(request, fence, now);
            self.counted(&mut records, |records| records.insert(request.id, stored));
        }
        Ok(Reserved::from_decision(decision, request, now))
    }
}

/// A place that is counted until the record that takes it is, or until it is given up.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    fn identity(&self) -> Option<usize> {
        Some(Arc::as_ptr(&self.inner) as usize)
    }

    fn namespace(&self) -> &str {
        &self.inner.namespace
    }

    async fn reserve(&self, request: &Request<'_>) -> Result<Reserved, Error> {
        self.reserve_now(request)
    }

    async fn complete(
        &self,
        reservation: &Reservation,
        outcome: Bytes,
        retention: Retention,
    ) -> Result<Held, Error> {
        Ok(self.step(reservation, |now| {
            reservation.completion(outcome, retention, now)
        }))
    }

    async fn release(&self, reservation: &Reservation) -> Result<Held, Error> {
        Ok(self.step(reservation, |_| reservation.giving_back()))
    }

    async fn renew(&self, reservation: &Reservation, lease: Duration) -> Result<Held, Error> {
        Ok(self.step(reservation, |now| reservation.renewal(lease, now)))
    }

    async fn lookup(&self, id: RecordId) -> Result<Option<Stored>, Error> {
        let (records, now) = self.records(self.shard(id), id);
        let stored = records.get(id).cloned();
        drop(records);
        Ok(stored.and_then(|stored| stored.as_of(now)))
    }

    async fn forget(&self, id: RecordId) -> Result<bool, Error> {
        let shard = self.shard(id);
        let (mut records, now) = self.records(shard, id);
        // One that is over counts as absent already: there is nothing to forget.
        let forgotten = match records.get(id) {
            Some(stored) if !stored.record.is_running(now) => !stored.record.is_over(now),
            _ => return Ok(false),
        };
        self.counted(&mut records, |records| records.remove(id));
        drop(records);
        shard.changed.notify_waiters();
        Ok(forgotten)
    }

    async fn purge(&self, limit: usize) -> Result<usize, Error> {
        Ok(self.purge_now(limit))
    }

    fn changed(&self, id: RecordId) -> impl Future<Output = ()> + Send {
        let shard = self.shard(id);
        let before = shard.seen(id);
        // Made here and not at the first poll: a change from now on is not missed.
        let mut notified = shard.changed.notified();
        async move {
            // A shard's records share their wake-ups: those of others end here.
            loop {
                notified.await;
                notified = shard.changed.notified();
                if shard.seen(id) != before {
                    return;
                }
            }
        }
    }
}
