//! The memory store against a model that only remembers what happened.

use std::time::Duration;

use idem_runtime::key::RecordId;
use idem_runtime::protocol::{OnCrash, Owner};
use idem_runtime::retention::Retention;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::{Held, Request, Reservation, Reserved, Store};
use idem_runtime::testing::clock::ManualClock;
use proptest::prelude::*;

use super::{at, owner, payload};

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
        held: bool,
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

    fn is_held(&self, id: RecordId, now: u64) -> bool {
        matches!(
            self.state(id, now),
            Some(Happened::Renewed { held: true, .. })
        )
    }

    fn is_lapsed(&self, id: RecordId, now: u64) -> bool {
        matches!(
            self.state(id, now),
            Some(Happened::Reserved { until, .. } | Happened::Renewed { until, .. }) if until <= now
        )
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
            Some(Happened::Reserved { until, .. } | Happened::Renewed { until, .. }) => {
                let (holder, kept) = self.model.reservation(id).expect("was reserved");
                let own = holder == owner(n);
                if until <= now && own {
                    (true, None)
                } else if kept != wanted {
                    assert_eq!(answer, Reserved::Mismatch);
                    return;
                } else if until <= now && !self.model.is_held(id, now) {
                    (true, None)
                } else if until <= now {
                    assert_eq!(answer, Reserved::Abandoned);
                    return;
                } else if own {
                    let Reserved::Granted(again) = answer else {
                        panic!("{answer:?} for its own reservation");
                    };
                    let before = self.granted.insert((key, n), again.clone());
                    assert_eq!(before.map(|held| held.fence), Some(again.fence));
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
        let mut expected = self.model.held(id, now, owner(n));
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
                let hold = held.on_crash == OnCrash::Hold;
                // What is lapsed does not begin to be held.
                if hold && !self.model.is_held(id, now) && self.model.is_lapsed(id, now) {
                    expected = false;
                }
                let lease = Duration::from_millis(MODEL_LEASE);
                let until = now + MODEL_LEASE;
                (
                    self.store.renew(&held, lease).await,
                    Happened::Renewed {
                        until,
                        held: hold || self.model.is_held(id, now),
                    },
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
                    Some(Happened::Reserved { until, .. } | Happened::Renewed { until, .. }) => {
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
