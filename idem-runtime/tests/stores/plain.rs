//! A store with nothing in it but the protocol, and the flaws that a store may have.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use idem_runtime::Error;
use idem_runtime::clock::{Clock as _, Moment};
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::key::RecordId;
use idem_runtime::protocol::{Decision, Event, OnCrash, Owner, State, apply, decide};
use idem_runtime::retention::Retention;
use idem_runtime::store::{Held, Request, Reservation, Reserved, Store, Stored};
use idem_runtime::testing::clock::ManualClock;

macro_rules! flaws {
    ($($(#[doc = $text:literal])* $flaw:ident,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Flaw { $($(#[doc = $text])* $flaw,)* }

        impl Flaw {
            pub(crate) const ALL: &[Self] = &[$(Self::$flaw),*];
        }
    };
}

flaws! {
    /// Reads, then writes, and others come in between.
    TwoStepClaim,
    /// `release` deletes whatever is there.
    ReleaseAnybodys,
    /// What is over counts until somebody purges it.
    ExpiresByPurge,
    /// Every replay starts the retention again.
    ReadingExtends,
    /// Every completion starts it again.
    CompletingExtends,
    /// It runs from the reservation on.
    CountsFromReservation,
    /// The outcome is written without the payload's digest.
    LosesFingerprint,
    /// A second completion replaces the first.
    Overwrites,
    /// Fences are counted within one record's life.
    FencesBeginAgain,
    /// Durations are cut to seconds.
    WholeSeconds,
    /// A reservation has no end.
    LeaseIsForever,
    /// What is to be held is taken over.
    IgnoresHold,
    /// A claim is held before anybody has confirmed it.
    HoldsFromTheClaim,
    /// A lapsed reservation is taken over by any payload.
    ForgetsPayloadWithLease,
    /// A purge takes lapsed reservations with it.
    PurgesReservations,
    /// Outcomes are kept as text with an end mark.
    EndsAtZero,
    /// There are no tombstones.
    ForgetsWithTheOutcome,
    /// The outcome is replayed for as long as its key is known.
    ReplaysFromTheGrave,
    /// A purge takes the tombstone with the outcome.
    PurgesTombstones,
    /// A repeated request waits for itself.
    RefusesItself,
    /// A lease that is over counts as taken over.
    RefusesLate,
}

#[derive(Clone, Debug)]
pub(crate) struct PlainStore {
    records: Arc<Mutex<Records>>,
    clock: ManualClock,
    namespace: &'static str,
    flaws: &'static [Flaw],
}

#[derive(Debug, Default)]
struct Records {
    all: BTreeMap<RecordId, Stored>,
    fences: u64,
}

impl PlainStore {
    pub(crate) fn new(clock: ManualClock, flaws: &'static [Flaw]) -> Self {
        Self {
            records: Arc::default(),
            clock,
            namespace: "here",
            flaws,
        }
    }

    pub(crate) fn in_namespace(&self, namespace: &'static str) -> Self {
        Self {
            namespace,
            ..self.clone()
        }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaws.contains(&flaw)
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap()
    }

    /// The moment that expiry is asked about.
    fn now(&self) -> Moment {
        match self.has(Flaw::ExpiresByPurge) {
            true => Moment::from_millis(0),
            false => self.clock.now(),
        }
    }

    fn later(&self, from: Moment, time: Duration) -> Moment {
        match self.has(Flaw::WholeSeconds) {
            true => from.after(Duration::from_secs(time.as_secs())),
            false => from.after(time),
        }
    }

    fn decide(&self, records: &mut Records, request: &Request<'_>) -> Decision {
        let record = records.all.get(&request.id).map(|at| at.record.clone());
        records.fences += 1;
        let floor = match self.has(Flaw::FencesBeginAgain) {
            true => 1,
            false => records.fences,
        };
        let owner = match self.has(Flaw::RefusesItself) {
            true => Owner::fresh(),
            false => request.owner,
        };
        let fingerprint = match &record {
            Some(record)
                if self.has(Flaw::ForgetsPayloadWithLease)
                    && record.is_lapsed(self.clock.now()) =>
            {
                record.fingerprint
            }
            _ => request.fingerprint,
        };
        decide(
            record.as_ref(),
            owner,
            fingerprint,
            floor,
            // Leases end by themselves: the flaw is about outcomes.
            match record.as_ref().map(|record| &record.state) {
                Some(State::Reserved { .. }) => self.clock.now(),
                _ => self.now(),
            },
        )
    }

    fn step(&self, held: &Reservation, event: impl FnOnce(Moment) -> Event) -> Held {
        let mut records = self.records();
        let now = self.clock.now();
        let Some(stored) = records.all.get_mut(&held.id) else {
            return Held::No;
        };
        match apply(Some(&stored.record), event(now), now) {
            Ok(Some(record)) => stored.record = record,
            Ok(None) => drop(records.all.remove(&held.id)),
            Err(_) => return Held::No,
        }
        Held::Yes
    }
}

impl Store for PlainStore {
    fn namespace(&self) -> &str {
        self.namespace
    }

    async fn reserve(&self, request: &Request<'_>) -> Result<Reserved, Error> {
        let early = self
            .has(Flaw::TwoStepClaim)
            .then(|| self.decide(&mut self.records(), request));
        if early.is_some() {
            tokio::task::yield_now().await;
        }
        let mut records = self.records();
        let decision = early.unwrap_or_else(|| self.decide(&mut records, request));
        let now = self.clock.now();
        if let Decision::Grant(fence) = decision {
            let mut stored = Stored::reserved(request, fence, now);
            if let State::Reserved {
                lease_until, held, ..
            } = &mut stored.record.state
            {
                *held = self.has(Flaw::HoldsFromTheClaim) && request.on_crash == OnCrash::Hold;
                *lease_until = Some(match self.has(Flaw::LeaseIsForever) {
                    true => Moment::from_millis(u64::MAX),
                    false => self.later(now, request.lease),
                });
            }
            records.all.insert(request.id, stored);
        }
        if self.has(Flaw::ReadingExtends)
            && matches!(decision, Decision::Replay { .. })
            && let Some(stored) = records.all.get_mut(&request.id)
            && let State::Completed {
                keep_until: Some(until),
                known_until: Some(known),
                recorded_at,
                ..
            } = &mut stored.record.state
        {
            for end in [until, known] {
                *end = now.after(recorded_at.until(*end));
            }
        }
        Ok(Reserved::from_decision(decision, request, now))
    }

    async fn complete(
        &self,
        held: &Reservation,
        mut outcome: Bytes,
        retention: Retention,
    ) -> Result<Held, Error> {
        if self.has(Flaw::EndsAtZero)
            && let Some(end) = outcome.iter().position(|byte| *byte == 0)
        {
            outcome.truncate(end);
        }
        let from = {
            let records = self.records();
            let created = records.all.get(&held.id).map(|at| at.created_at);
            match self.has(Flaw::CountsFromReservation) {
                true => created.unwrap_or(self.clock.now()),
                false => self.clock.now(),
            }
        };
        let kept = match self.has(Flaw::ReplaysFromTheGrave) {
            true => retention.known_millis(),
            false => retention.millis(),
        };
        let keep_until = kept.map(|millis| self.later(from, Duration::from_millis(millis)));
        let known_until = match self.has(Flaw::ForgetsWithTheOutcome) {
            true => keep_until,
            false => retention
                .known_millis()
                .map(|millis| self.later(from, Duration::from_millis(millis))),
        };
        let mut records = self.records();
        if let Some(stored) = records.all.get_mut(&held.id)
            && let State::Completed {
                outcome: kept,
                keep_until: until,
                known_until: known,
                ..
            } = &mut stored.record.state
        {
            if self.has(Flaw::Overwrites) {
                *kept = outcome.clone();
                return Ok(Held::Yes);
            }
            if self.has(Flaw::CompletingExtends) {
                *until = keep_until;
                *known = known_until;
            }
        }
        drop(records);
        if self.has(Flaw::RefusesLate)
            && let Some(stored) = self.records().all.get(&held.id)
            && stored.record.is_lapsed(self.clock.now())
        {
            return Ok(Held::No);
        }
        let Reservation { owner, fence, .. } = *held;
        let done = self.step(held, |_| Event::Complete {
            owner,
            fence,
            outcome,
            keep_until,
            known_until,
        });
        if self.has(Flaw::LosesFingerprint)
            && let Some(stored) = self.records().all.get_mut(&held.id)
        {
            stored.record.fingerprint = Fingerprint::NONE;
        }
        Ok(done)
    }

    async fn release(&self, held: &Reservation) -> Result<Held, Error> {
        if self.has(Flaw::ReleaseAnybodys) {
            return Ok(match self.records().all.remove(&held.id) {
                Some(_) => Held::Yes,
                None => Held::No,
            });
        }
        Ok(self.step(held, |_| held.giving_back()))
    }

    async fn renew(&self, held: &Reservation, lease: Duration) -> Result<Held, Error> {
        let Reservation { owner, fence, .. } = *held;
        Ok(self.step(held, |now| Event::Renew {
            owner,
            fence,
            lease_until: self.later(now, lease),
            hold: held.on_crash == OnCrash::Hold && !self.has(Flaw::IgnoresHold),
        }))
    }

    async fn lookup(&self, id: RecordId) -> Result<Option<Stored>, Error> {
        let now = self.now();
        let records = self.records();
        let stored = records.all.get(&id).cloned();
        Ok(stored.and_then(|stored| stored.as_of(now)))
    }

    async fn forget(&self, id: RecordId) -> Result<bool, Error> {
        let mut records = self.records();
        let Some(stored) = records.all.get(&id) else {
            return Ok(false);
        };
        let reserved = matches!(stored.record.state, State::Reserved { .. });
        if stored.record.is_over(self.now())
            || reserved && !stored.record.is_lapsed(self.clock.now())
        {
            return Ok(false);
        }
        records.all.remove(&id);
        Ok(true)
    }

    async fn purge(&self, limit: usize) -> Result<usize, Error> {
        let now = self.clock.now();
        let mut records = self.records();
        let over: Vec<_> = records
            .all
            .iter()
            .filter(|(_, at)| {
                at.record.is_over(now)
                    || self.has(Flaw::PurgesTombstones) && at.record.is_outcome_gone(now)
                    || self.has(Flaw::PurgesReservations) && at.record.is_lapsed(now)
            })
            .map(|(id, _)| *id)
            .take(limit)
            .collect();
        for id in &over {
            records.all.remove(id);
        }
        Ok(over.len())
    }
}
