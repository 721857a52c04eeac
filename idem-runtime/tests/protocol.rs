//! The protocol, checked over every sequence of events up to a depth, and the memory store against
//! a model that only remembers what happened.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use idem_runtime::clock::Moment;
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::key::RecordId;
use idem_runtime::protocol::{
    Decision, Event, Fence, OnCrash, Owner, Record, Refused, State, apply, decide,
};
use idem_runtime::retention::Retention;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::{Held, Request, Reservation, Reserved, Store};
use idem_runtime::testing::clock::ManualClock;
use proptest::prelude::*;

fn owner(n: u8) -> Owner {
    Owner::from_bytes([n; 16])
}

fn payload(n: u8) -> Fingerprint {
    Fingerprint::from_bytes([n; 17])
}

fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

const LEASE: u64 = 2;
const RETENTION: u64 = 3;

/// All there is to know: the record, the time, and what the owners believe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    record: Option<Kept>,
    now: u64,
    /// What each of two owners was granted last: fence, and the end of its lease as it knows it.
    granted: [Option<(u64, u64)>; 2],
    /// The highest fence ever granted.
    highest: u64,
}

/// A record that hashes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kept {
    payload: u8,
    fence: u64,
    state: KeptState,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum KeptState {
    Reserved(u8, Option<u64>),
    Completed(Vec<u8>, u64, Option<u64>),
}

impl Kept {
    fn record(&self) -> Record {
        Record {
            fingerprint: payload(self.payload),
            fence: Fence::new(self.fence),
            state: match &self.state {
                KeptState::Reserved(n, until) => State::Reserved {
                    owner: owner(*n),
                    lease_until: until.map(at),
                },
                KeptState::Completed(outcome, recorded, until) => State::Completed {
                    outcome: Bytes::copy_from_slice(outcome),
                    recorded_at: at(*recorded),
                    keep_until: until.map(at),
                },
            },
        }
    }

    fn of(record: Record) -> Self {
        Self {
            payload: record.fingerprint.as_bytes()[0],
            fence: record.fence.get(),
            state: match record.state {
                State::Reserved { owner, lease_until } => {
                    KeptState::Reserved(owner.as_bytes()[0], lease_until.map(Moment::as_millis))
                }
                State::Completed {
                    outcome,
                    recorded_at,
                    keep_until,
                } => KeptState::Completed(
                    outcome.to_vec(),
                    recorded_at.as_millis(),
                    keep_until.map(Moment::as_millis),
                ),
                other => panic!("no event makes {other:?}"),
            },
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Ask(u8, u8, OnCrash),
    Complete(u8),
    Release(u8),
    Renew(u8),
    Wait,
    Purge,
}

fn actions() -> Vec<Action> {
    let mut all = vec![Action::Wait, Action::Purge];
    for n in 0..2 {
        all.extend([Action::Complete(n), Action::Release(n), Action::Renew(n)]);
        for hold in [OnCrash::Rerun, OnCrash::Hold] {
            all.extend([Action::Ask(n, 1, hold), Action::Ask(n, 2, hold)]);
        }
    }
    all
}

impl World {
    fn after(&self, action: Action) -> Self {
        let mut next = self.clone();
        match action {
            Action::Wait => next.now += 1,
            Action::Purge => {
                if self
                    .record
                    .as_ref()
                    .is_some_and(|kept| kept.record().is_over(at(self.now)))
                {
                    next.record = None;
                }
            }
            Action::Ask(n, payload, on_crash) => self.ask(&mut next, n, payload, on_crash),
            Action::Complete(n) => self.step(&mut next, n, |owner, fence| Event::Complete {
                owner,
                fence,
                outcome: vec![n].into(),
                keep_until: Some(at(self.now + RETENTION)),
            }),
            Action::Release(n) => {
                self.step(&mut next, n, |owner, fence| Event::Release { owner, fence });
            }
            Action::Renew(n) => self.step(&mut next, n, |owner, fence| Event::Renew {
                owner,
                fence,
                lease_until: at(self.now + LEASE),
            }),
        }
        next
    }

    fn ask(&self, next: &mut Self, n: u8, wanted: u8, on_crash: OnCrash) {
        let record = self.record.as_ref().map(Kept::record);
        let now = at(self.now);
        let ask = |record| {
            // A floor that never falls; the least that a store may hand in.
            decide(
                record,
                owner(n),
                payload(wanted),
                on_crash,
                self.highest + 1,
                now,
            )
        };
        let decision = ask(record.as_ref());
        if record.as_ref().is_some_and(|record| record.is_over(now)) {
            let purged = matches!(ask(None), Decision::Grant(_));
            assert!(
                purged && matches!(decision, Decision::Grant(_)),
                "{self:?}: a purge decides"
            );
        }
        match decision {
            Decision::Grant(fence) => {
                assert!(
                    fence.get() > self.highest,
                    "{self:?}: {fence} is not higher"
                );
                self.nobody_else_is_live(n);
                if let Some(Kept {
                    state: KeptState::Reserved(holder, _),
                    ..
                }) = &self.record
                {
                    let own = *holder == n;
                    assert!(
                        own || on_crash == OnCrash::Rerun,
                        "{self:?}: taken over on hold"
                    );
                }
                self.grant(next, n, wanted, fence);
            }
            Decision::AlreadyOurs(fence) => {
                let record = self.record.as_ref().expect("a record");
                assert!(matches!(record.state, KeptState::Reserved(holder, _) if holder == n));
                assert_eq!(
                    (record.fence, record.payload),
                    (fence.get(), wanted),
                    "{self:?}"
                );
            }
            Decision::Replay { outcome, .. } => {
                let record = self.record.as_ref().expect("a record");
                let KeptState::Completed(kept, _, until) = &record.state else {
                    panic!("{self:?}: a replay of what is not completed");
                };
                assert!(*kept == outcome && until.is_none_or(|until| until > self.now));
                assert_eq!(record.payload, wanted, "{self:?}");
            }
            Decision::InProgress { lease_until } => {
                let record = self.record.as_ref().expect("a record");
                let KeptState::Reserved(holder, until) = record.state else {
                    panic!("{self:?}: what is not reserved is in progress");
                };
                assert!(
                    holder != n && until.is_none_or(|until| until > self.now),
                    "{self:?}"
                );
                assert_eq!(lease_until, until.map(at));
            }
            Decision::Mismatch => {
                let record = self.record.as_ref().expect("a record");
                assert_ne!(record.payload, wanted, "{self:?}");
            }
            Decision::Abandoned => {
                let record = self.record.as_ref().expect("a record");
                let lapsed = matches!(record.state, KeptState::Reserved(_, Some(until)) if until <= self.now);
                assert!(lapsed && on_crash == OnCrash::Hold, "{self:?}");
            }
            other => panic!("{self:?}: {other:?}"),
        }
    }

    fn grant(&self, next: &mut Self, n: u8, wanted: u8, fence: Fence) {
        let lease_until = Some(at(self.now + LEASE));
        let event = |fence| Event::Reserve {
            owner: owner(n),
            fence,
            fingerprint: payload(wanted),
            lease_until,
        };
        let record = self.record.as_ref().map(Kept::record);
        if let Some(record) = &record {
            let same = apply(Some(record), event(record.fence), at(self.now));
            assert_eq!(same, Err(Refused::FenceNotHigher), "{self:?}");
        }
        let reserved = apply(record.as_ref(), event(fence), at(self.now)).expect("a grant applies");
        next.record = reserved.map(Kept::of);
        next.granted[usize::from(n)] = Some((fence.get(), self.now + LEASE));
        next.highest = fence.get();
    }

    /// No other owner may rightly believe that its lease is running.
    fn nobody_else_is_live(&self, n: u8) {
        if let Some((fence, until)) = self.granted[usize::from(1 - n)] {
            let ended = !self.holds(1 - n, fence);
            assert!(ended || until <= self.now, "{self:?}: two owners at a time");
        }
    }

    fn holds(&self, n: u8, fence: u64) -> bool {
        matches!(&self.record, Some(kept) if kept.fence == fence
            && matches!(kept.state, KeptState::Reserved(holder, _) if holder == n))
    }

    /// A step of an owner, with the fence it was granted last, and with one it was not.
    fn step(&self, next: &mut Self, n: u8, event: impl Fn(Owner, Fence) -> Event) {
        let record = self.record.as_ref().map(Kept::record);
        let apply = |fence| {
            apply(
                record.as_ref(),
                event(owner(n), Fence::new(fence)),
                at(self.now),
            )
        };
        assert_eq!(apply(self.highest + 1), Err(Refused::NotHeld), "{self:?}");
        let Some((fence, _)) = self.granted[usize::from(n)] else {
            return;
        };
        let answer = apply(fence);
        assert_eq!(
            answer.is_ok(),
            self.holds(n, fence),
            "{self:?}: only the holder's steps count"
        );
        let Ok(record) = answer else {
            return;
        };
        next.record = record.map(Kept::of);
        if let Some(kept) = &next.record {
            assert_eq!(kept.fence, fence, "{self:?}: a step changes no fence");
            assert_eq!(
                kept.payload,
                self.record.as_ref().map_or(0, |kept| kept.payload)
            );
            if let KeptState::Reserved(_, Some(until)) = kept.state {
                next.granted[usize::from(n)] = Some((fence, until));
            }
        }
    }

    /// What holds from one moment to the next, whatever happens.
    fn check(&self, next: &Self) {
        if let Some(Kept {
            state: KeptState::Completed(_, _, until),
            ..
        }) = &self.record
            && until.is_none_or(|until| until > self.now)
        {
            assert_eq!(
                self.record, next.record,
                "{self:?}: completed, and changed before its time"
            );
        }
        assert!(next.highest >= self.highest);
    }
}

#[test]
fn every_sequence_of_events_keeps_the_invariants() {
    let start = World {
        record: None,
        now: 0,
        granted: [None, None],
        highest: 0,
    };
    let mut seen = HashSet::from([start.clone()]);
    let mut edge = vec![start];
    for depth in 0..13 {
        let mut further = Vec::new();
        for world in &edge {
            for action in actions() {
                let next = world.after(action);
                world.check(&next);
                if seen.insert(next.clone()) {
                    further.push(next);
                }
            }
        }
        assert!(!further.is_empty(), "nothing new at depth {depth}");
        edge = further;
    }
    assert!(seen.len() > 10_000, "only {} worlds", seen.len());
}

#[test]
fn a_reservation_without_an_end_is_never_taken_over() {
    let record = Record {
        fingerprint: payload(1),
        fence: Fence::new(3),
        state: State::Reserved {
            owner: owner(1),
            lease_until: None,
        },
    };
    let late = at(u64::MAX);
    let decision = decide(Some(&record), owner(2), payload(1), OnCrash::Rerun, 9, late);
    assert_eq!(decision, Decision::InProgress { lease_until: None });
    assert!(!record.is_over(late) && !record.is_lapsed(late));
}

#[test]
fn a_tombstone_counts_until_its_time_is_over() {
    let record = Record {
        fingerprint: payload(1),
        fence: Fence::new(3),
        state: State::Tombstone {
            until: Some(at(10)),
        },
    };
    let ask = |wanted, now| {
        decide(
            Some(&record),
            owner(2),
            payload(wanted),
            OnCrash::Rerun,
            1,
            at(now),
        )
    };
    assert_eq!(ask(1, 9), Decision::OutcomeGone);
    assert_eq!(ask(2, 9), Decision::Mismatch);
    assert_eq!(ask(2, 10), Decision::Grant(Fence::new(4)));
}

/// Remembers what counted, and answers from the last of it.
#[derive(Debug, Default)]
struct Model {
    log: Vec<(RecordId, u64, Happened)>,
}

#[derive(Clone, Debug)]
enum Happened {
    Reserved {
        owner: Owner,
        payload: u8,
        until: u64,
    },
    Renewed {
        until: u64,
    },
    Completed {
        outcome: u8,
        until: Option<u64>,
    },
    Gone,
}

impl Model {
    fn last(&self, id: RecordId, want: impl Fn(&Happened) -> bool) -> Option<&Happened> {
        let mine = self.log.iter().rev().filter(|(of, _, _)| *of == id);
        mine.map(|(_, _, what)| what).find(|what| want(what))
    }

    fn reservation(&self, id: RecordId) -> Option<(Owner, u8)> {
        let last = self.last(id, |what| {
            matches!(what, Happened::Reserved { .. } | Happened::Gone)
        });
        match last {
            Some(Happened::Reserved { owner, payload, .. }) => Some((*owner, *payload)),
            _ => None,
        }
    }

    /// `None`: absent; else the holder and the end of its lease, or the outcome.
    fn state(&self, id: RecordId, now: u64) -> Option<Happened> {
        match self.last(id, |_| true)? {
            Happened::Gone => None,
            Happened::Completed {
                until: Some(until), ..
            } if *until <= now => None,
            other => Some(other.clone()),
        }
    }

    fn push(&mut self, id: RecordId, now: u64, what: Happened) {
        self.log.push((id, now, what));
    }

    fn held(&self, id: RecordId, now: u64, owner: Owner) -> bool {
        let running = matches!(
            self.state(id, now),
            Some(Happened::Reserved { .. } | Happened::Renewed { .. })
        );
        running
            && self
                .reservation(id)
                .is_some_and(|(holder, _)| holder == owner)
    }
}

#[derive(Clone, Debug)]
enum Op {
    Reserve {
        key: u8,
        owner: u8,
        payload: u8,
        hold: bool,
    },
    Complete {
        key: u8,
        owner: u8,
        outcome: u8,
        keep: Option<u8>,
    },
    Release {
        key: u8,
        owner: u8,
    },
    Renew {
        key: u8,
        owner: u8,
    },
    Lookup {
        key: u8,
    },
    Forget {
        key: u8,
    },
    Purge {
        limit: u8,
    },
    Wait {
        millis: u8,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let (key, owner) = (0..3u8, 0..3u8);
    prop_oneof![
        5 => (key.clone(), owner.clone(), 1..3u8, any::<bool>())
            .prop_map(|(key, owner, payload, hold)| Op::Reserve { key, owner, payload, hold }),
        3 => (key.clone(), owner.clone(), any::<u8>(), proptest::option::of(1..30u8))
            .prop_map(|(key, owner, outcome, keep)| Op::Complete { key, owner, outcome, keep }),
        1 => (key.clone(), owner.clone()).prop_map(|(key, owner)| Op::Release { key, owner }),
        2 => (key.clone(), owner).prop_map(|(key, owner)| Op::Renew { key, owner }),
        1 => key.clone().prop_map(|key| Op::Lookup { key }),
        1 => key.prop_map(|key| Op::Forget { key }),
        1 => (0..4u8).prop_map(|limit| Op::Purge { limit }),
        3 => (0..20u8).prop_map(|millis| Op::Wait { millis }),
    ]
}

const MODEL_LEASE: u64 = 12;

/// The store and the model side by side.
struct Pair {
    store: MemoryStore,
    clock: ManualClock,
    model: Model,
    now: u64,
    granted: std::collections::HashMap<(u8, u8), Reservation>,
    highest: std::collections::HashMap<u8, u64>,
}

impl Pair {
    fn id(key: u8) -> RecordId {
        RecordId::from_bytes([key; 16])
    }

    async fn reserve(&mut self, key: u8, n: u8, wanted: u8, hold: bool) {
        let (id, now) = (Self::id(key), self.now);
        let mut request = Request::new(id, payload(wanted), Duration::from_millis(MODEL_LEASE));
        request.owner = owner(n);
        request.on_crash = if hold { OnCrash::Hold } else { OnCrash::Rerun };
        let answer = self.store.reserve(&request).await.expect("an answer");
        let (free, free_in) = match self.model.state(id, now) {
            None => (true, None),
            Some(Happened::Completed { outcome, .. }) => {
                let (_, kept) = self.model.reservation(id).expect("was reserved");
                match (&answer, kept == wanted) {
                    (Reserved::Completed { outcome: got, .. }, true) => {
                        assert_eq!(**got, [outcome])
                    }
                    (got, false) => assert_eq!(*got, Reserved::Mismatch),
                    (got, true) => panic!("{got:?} for what is completed"),
                }
                return;
            }
            Some(Happened::Reserved { until, .. } | Happened::Renewed { until }) => {
                let (holder, kept) = self.model.reservation(id).expect("was reserved");
                let own = holder == owner(n);
                if until <= now && (own || !hold) {
                    (true, None)
                } else if kept != wanted {
                    assert_eq!(answer, Reserved::Mismatch);
                    return;
                } else if until <= now {
                    assert_eq!(answer, Reserved::Abandoned);
                    return;
                } else if own {
                    let Reserved::Granted(again) = answer else {
                        panic!("{answer:?} for its own reservation");
                    };
                    assert_eq!(Some(&again), self.granted.get(&(key, n)));
                    return;
                } else {
                    (false, Some(Duration::from_millis(until - now)))
                }
            }
            Some(Happened::Gone) => unreachable!(),
        };
        match answer {
            Reserved::Granted(held) if free => {
                let highest = self.highest.entry(key).or_default();
                assert!(held.fence.get() > *highest, "{held:?} after {highest}");
                *highest = held.fence.get();
                self.granted.insert((key, n), held);
                let until = now + MODEL_LEASE;
                let (owner, payload) = (owner(n), wanted);
                self.model.push(
                    id,
                    now,
                    Happened::Reserved {
                        owner,
                        payload,
                        until,
                    },
                );
            }
            Reserved::InProgress { free_in: got } if !free => assert_eq!(got, free_in),
            other => panic!("{other:?}, and free is {free}"),
        }
    }

    /// A step of an owner that may have lost its reservation long ago.
    async fn step(&mut self, key: u8, n: u8, op: &Op) {
        let (id, now) = (Self::id(key), self.now);
        let Some(held) = self.granted.get(&(key, n)).cloned() else {
            return;
        };
        // An owner asks again under one token: only its last fence counts.
        let expected = self.model.held(id, now, owner(n));
        let (answer, what) = match op {
            Op::Complete { outcome, keep, .. } => {
                let retention = keep.map_or(Retention::FOREVER, |keep| {
                    Retention::new(Duration::from_millis(keep.into())).expect("valid")
                });
                let until = keep.map(|keep| now + u64::from(keep));
                let answer = self
                    .store
                    .complete(&held, vec![*outcome].into(), retention)
                    .await;
                (
                    answer,
                    Happened::Completed {
                        outcome: *outcome,
                        until,
                    },
                )
            }
            Op::Release { .. } => (self.store.release(&held).await, Happened::Gone),
            _ => {
                let lease = Duration::from_millis(MODEL_LEASE);
                let until = now + MODEL_LEASE;
                (
                    self.store.renew(&held, lease).await,
                    Happened::Renewed { until },
                )
            }
        };
        assert_eq!(answer.expect("an answer") == Held::Yes, expected, "{op:?}");
        if expected {
            self.model.push(id, now, what);
        }
    }

    async fn run(&mut self, op: Op) {
        let now = self.now;
        match op {
            Op::Reserve {
                key,
                owner,
                payload,
                hold,
            } => {
                self.reserve(key, owner, payload, hold).await;
            }
            Op::Complete { key, owner, .. }
            | Op::Release { key, owner }
            | Op::Renew { key, owner } => {
                self.step(key, owner, &op).await;
            }
            Op::Lookup { key } => {
                let shown = self.store.lookup(Self::id(key)).await.expect("an answer");
                assert_eq!(
                    shown.is_some(),
                    self.model.state(Self::id(key), now).is_some()
                );
            }
            Op::Forget { key } => {
                let id = Self::id(key);
                let expected = match self.model.state(id, now) {
                    None | Some(Happened::Gone) => false,
                    Some(Happened::Completed { .. }) => true,
                    Some(Happened::Reserved { until, .. } | Happened::Renewed { until }) => {
                        until <= now
                    }
                };
                assert_eq!(self.store.forget(id).await.expect("an answer"), expected);
                if expected {
                    self.model.push(id, now, Happened::Gone);
                }
            }
            Op::Purge { limit } => {
                let purged = self.store.purge(limit.into()).await.expect("an answer");
                assert!(purged <= limit.into());
            }
            Op::Wait { millis } => {
                self.now += u64::from(millis);
                self.clock.advance(Duration::from_millis(millis.into()));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_memory_store_answers_as_the_model(ops in proptest::collection::vec(op(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let clock = ManualClock::at(at(1_000));
            let mut pair = Pair {
                store: MemoryStore::builder().clock(clock.clone()).build(),
                clock,
                model: Model::default(),
                now: 1_000,
                granted: Default::default(),
                highest: Default::default(),
            };
            for op in ops {
                pair.run(op).await;
            }
        });
    }
}
