//! A store of one's own: one map behind one lock. It passes the conformance suite, which this
//! program runs and prints.
//!
//! What a store has to do is carry out single atomic steps; what the steps mean is decided by
//! `protocol::decide` and `protocol::apply`. A store over a server that has locks or transactions
//! can do the same; one over a server that has scripts states the same rules there.

// It prints what it has checked.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idem::Error;
use idem::bytes::Bytes;
use idem::clock::{Clock, Moment};
use idem::key::RecordId;
use idem::protocol::{Decision, Event, apply, decide};
use idem::retention::Retention;
use idem::store::{Held, Request, Reservation, Reserved, Store, Stored};
use idem::testing::clock::ManualClock;
use idem::testing::conformance::{Harness, Time, cases};

#[derive(Clone)]
struct MapStore {
    shelf: Arc<Mutex<Shelf>>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Shelf {
    records: BTreeMap<RecordId, Stored>,
    /// Never falls, so that fences grow even where a record was removed in between.
    fences: u64,
}

impl MapStore {
    fn new(clock: impl Clock) -> Self {
        Self {
            shelf: Arc::default(),
            clock: Arc::new(clock),
        }
    }

    /// One lock around each step makes it atomic.
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step of an owner: it counts if the record is held by it, and else changes nothing.
    fn step(&self, held: &Reservation, event: impl FnOnce(Moment) -> Event) -> Held {
        let (mut shelf, now) = (self.shelf(), self.clock.now());
        let Some(stored) = shelf.records.get_mut(&held.id) else {
            return Held::No;
        };
        match apply(Some(&stored.record), event(now), now) {
            Ok(Some(record)) => stored.record = record,
            Ok(None) => drop(shelf.records.remove(&held.id)),
            Err(_) => return Held::No,
        }
        Held::Yes
    }
}

impl Store for MapStore {
    async fn reserve(&self, request: &Request<'_>) -> Result<Reserved, Error> {
        let (mut shelf, now) = (self.shelf(), self.clock.now());
        shelf.fences += 1;
        let record = shelf.records.get(&request.id).map(|stored| &stored.record);
        let decision = decide(
            record,
            request.owner,
            request.fingerprint,
            shelf.fences,
            now,
        );
        if let Decision::Grant(fence) = decision {
            let stored = Stored::reserved(request, fence, now);
            shelf.records.insert(request.id, stored);
        }
        Ok(Reserved::from_decision(decision, request, now))
    }

    async fn complete(
        &self,
        held: &Reservation,
        outcome: Bytes,
        retention: Retention,
    ) -> Result<Held, Error> {
        Ok(self.step(held, |now| held.completion(outcome, retention, now)))
    }

    async fn release(&self, held: &Reservation) -> Result<Held, Error> {
        Ok(self.step(held, |_| held.giving_back()))
    }

    async fn renew(&self, held: &Reservation, lease: Duration) -> Result<Held, Error> {
        Ok(self.step(held, |now| held.renewal(lease, now)))
    }

    async fn lookup(&self, id: RecordId) -> Result<Option<Stored>, Error> {
        let (shelf, now) = (self.shelf(), self.clock.now());
        let stored = shelf.records.get(&id).cloned();
        Ok(stored.and_then(|stored| stored.as_of(now)))
    }

    async fn forget(&self, id: RecordId) -> Result<bool, Error> {
        let (mut shelf, now) = (self.shelf(), self.clock.now());
        let forgettable = shelf
            .records
            .get(&id)
            .is_some_and(|stored| !stored.record.is_over(now) && !stored.record.is_running(now));
        Ok(forgettable && shelf.records.remove(&id).is_some())
    }

    async fn purge(&self, limit: usize) -> Result<usize, Error> {
        let (mut shelf, now) = (self.shelf(), self.clock.now());
        let over = shelf
            .records
            .iter()
            .filter(|(_, stored)| stored.record.is_over(now));
        let over: Vec<_> = over.map(|(id, _)| *id).take(limit).collect();
        shelf.records.retain(|id, _| !over.contains(id));
        Ok(over.len())
    }
}

#[tokio::main]
async fn main() -> Result<(), String> {
    for case in cases() {
        let clock = ManualClock::new();
        let harness = Harness::new(MapStore::new(clock.clone()), Time::Manual(clock));
        case.run(harness).await?;
        println!("ok  {}", case.name.replace('_', " "));
    }
    Ok(())
}
