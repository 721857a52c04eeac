//! Records in this process: for trying things out, for tests, and for effects that no other process
//! can repeat. The reference for what a [`Store`] does.
//!
//! Nothing survives the process, and no other process sees it.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use super::{Held, Request, Reservation, Reserved, Store, Stored};
use crate::clock::{Clock, Moment, SharedClock, SteadyClock};
use crate::error::{Error, ErrorKind};
use crate::key::RecordId;
use crate::protocol::{Decision, Event, Fence, State, apply, decide};
use crate::retention::Retention;

const SHARDS: usize = 64;

/// How many records a store holds unless it is told otherwise.
pub const DEFAULT_CAPACITY: usize = 1_000_000;

/// A store in this process.
///
/// It is bounded: when it is full of records that are not over, new keys are refused with
/// [`ErrorKind::StoreUnavailable`]; a record is never dropped before its time to make room.
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
    capacity: usize,
    namespace: String,
    fence: AtomicU64,
    clock: SharedClock,
}

#[derive(Debug, Default)]
struct Shard {
    records: Mutex<HashMap<RecordId, Stored>>,
    changed: Notify,
}

/// How a [`MemoryStore`] is made.
#[derive(Debug)]
#[must_use]
pub struct Builder {
    capacity: usize,
    namespace: String,
    clock: SharedClock,
}

impl Builder {
    /// The most records it holds.
    pub fn capacity(mut self, records: usize) -> Self {
        self.capacity = records;
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
                capacity: self.capacity,
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
            namespace: String::new(),
            clock: SharedClock::new(SteadyClock::new()),
        }
    }

    /// How many records it holds, those that are over but not purged included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.count.load(Ordering::Relaxed)
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

    /// Applies an event of a reservation; wakes who waits for the record.
    fn step(&self, reservation: &Reservation, event: impl FnOnce(Moment) -> Event) -> Held {
        let shard = self.shard(reservation.id);
        let mut records = shard.lock();
        let now = self.now();
        let Some(stored) = records.get_mut(&reservation.id) else {
            return Held::No;
        };
        match apply(Some(&stored.record), event(now), now) {
            Ok(Some(record)) => stored.record = record,
            Ok(None) => {
                records.remove(&reservation.id);
                self.inner.count.fetch_sub(1, Ordering::Relaxed);
            }
            Err(_) => return Held::No,
        }
        drop(records);
        shard.changed.notify_waiters();
        Held::Yes
    }

    /// Makes room for a new record by dropping some that are over.
    fn make_room(&self) -> Result<(), Error> {
        if self.inner.count.fetch_add(1, Ordering::Relaxed) < self.inner.capacity {
            return Ok(());
        }
        // Others may be at the same: what counts is that there is room, not who made it.
        self.purge_now(usize::MAX);
        if self.inner.count.load(Ordering::Relaxed) <= self.inner.capacity {
            return Ok(());
        }
        self.inner.count.fetch_sub(1, Ordering::Relaxed);
        Err(Error::new(ErrorKind::StoreUnavailable).detail(format!(
            "the memory store is full ({} records)",
            self.inner.capacity
        )))
    }

    /// Drops what is over, whole records or their outcomes: says of how many.
    fn purge_now(&self, limit: usize) -> usize {
        let now = self.now();
        let (mut freed, mut buried) = (0, 0);
        for shard in &self.inner.shards {
            if freed + buried == limit {
                break;
            }
            shard.lock().retain(|_, stored| {
                let record = &stored.record;
                if freed + buried == limit || !record.is_outcome_gone(now) {
                    return true;
                }
                let was_buried = matches!(record.state, State::Tombstone { .. });
                let Some(record) = record.clone().as_of(now) else {
                    freed += 1;
                    return false;
                };
                buried += usize::from(!was_buried);
                stored.record = record;
                true
            });
        }
        self.inner.count.fetch_sub(freed, Ordering::Relaxed);
        freed + buried
    }

    fn reserve_now(&self, request: &Request<'_>) -> Result<Reserved, Error> {
        let shard = self.shard(request.id);
        let known = shard.lock().contains_key(&request.id);
        // Outside the shard's lock: making room locks every shard.
        let mut room = if known { None } else { Some(self.make_room()?) };
        let mut records = shard.lock();
        let now = self.now();
        let floor = self.inner.fence.fetch_add(1, Ordering::Relaxed);
        let old = records.get(&request.id);
        let decision = decide(
            old.map(|stored| &stored.record),
            request.owner,
            request.fingerprint,
            request.on_crash,
            floor,
            now,
        );
        if let Decision::Grant(fence) = decision {
            if old.is_none() && room.take().is_none() {
                // It was there a moment ago and went in between.
                self.inner.count.fetch_add(1, Ordering::Relaxed);
            }
            records.insert(request.id, Stored::reserved(request, fence, now));
        }
        if room.is_some() {
            self.inner.count.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(Reserved::from_decision(decision, request, now))
    }
}

impl Shard {
    /// What a waiter for the record tells a change by.
    fn seen(&self, id: RecordId) -> Option<(Fence, bool)> {
        let records = self.lock();
        let record = &records.get(&id)?.record;
        Some((record.fence, matches!(record.state, State::Reserved { .. })))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RecordId, Stored>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
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
        let now = self.now();
        let stored = self.shard(id).lock().get(&id).cloned();
        Ok(stored.and_then(|stored| stored.as_of(now)))
    }

    async fn forget(&self, id: RecordId) -> Result<bool, Error> {
        let shard = self.shard(id);
        let mut records = shard.lock();
        let now = self.now();
        // One that is over counts as absent already: there is nothing to forget.
        let forgotten = match records.get(&id) {
            Some(stored) if !stored.record.is_running(now) => !stored.record.is_over(now),
            _ => return Ok(false),
        };
        records.remove(&id);
        self.inner.count.fetch_sub(1, Ordering::Relaxed);
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
