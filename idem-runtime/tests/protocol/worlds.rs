//! Every sequence of events up to a depth, with two owners and two payloads.

use std::collections::HashSet;

use bytes::Bytes;
use idem_runtime::clock::Moment;
use idem_runtime::protocol::{
    Decision, Event, Fence, Owner, Record, Refused, State, apply, decide,
};

use super::{at, owner, payload};

const LEASE: u64 = 2;
const TOMBSTONE: u64 = 1;
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
    Reserved(u8, Option<u64>, bool),
    Completed(Vec<u8>, u64, Option<u64>, Option<u64>),
}

impl Kept {
    fn record(&self) -> Record {
        Record {
            fingerprint: payload(self.payload),
            fence: Fence::new(self.fence),
            state: match &self.state {
                KeptState::Reserved(n, until, held) => State::Reserved {
                    owner: owner(*n),
                    lease_until: until.map(at),
                    held: *held,
                },
                KeptState::Completed(outcome, recorded, until, known) => State::Completed {
                    outcome: Bytes::copy_from_slice(outcome),
                    recorded_at: at(*recorded),
                    keep_until: until.map(at),
                    known_until: known.map(at),
                },
            },
        }
    }

    fn of(record: Record) -> Self {
        Self {
            payload: record.fingerprint.as_bytes()[16],
            fence: record.fence.get(),
            state: match record.state {
                State::Reserved {
                    owner,
                    lease_until,
                    held,
                } => KeptState::Reserved(
                    owner.as_bytes()[0],
                    lease_until.map(Moment::as_millis),
                    held,
                ),
                State::Completed {
                    outcome,
                    recorded_at,
                    keep_until,
                    known_until,
                } => KeptState::Completed(
                    outcome.to_vec(),
                    recorded_at.as_millis(),
                    keep_until.map(Moment::as_millis),
                    known_until.map(Moment::as_millis),
                ),
                other => panic!("no event makes {other:?}"),
            },
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Ask(u8, u8),
    Complete(u8),
    Release(u8),
    Renew(u8, bool),
    Wait,
    Purge,
}

fn actions() -> Vec<Action> {
    let mut all = vec![Action::Wait, Action::Purge];
    for n in 0..2 {
        all.extend([Action::Complete(n), Action::Release(n)]);
        all.extend([Action::Renew(n, false), Action::Renew(n, true)]);
        all.extend([Action::Ask(n, 1), Action::Ask(n, 2)]);
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
            Action::Ask(n, payload) => self.ask(&mut next, n, payload),
            Action::Complete(n) => self.step(&mut next, n, |owner, fence| Event::Complete {
                owner,
                fence,
                outcome: vec![n].into(),
                keep_until: Some(at(self.now + RETENTION)),
                known_until: Some(at(self.now + RETENTION + TOMBSTONE)),
            }),
            Action::Release(n) => {
                self.step(&mut next, n, |owner, fence| Event::Release { owner, fence });
            }
            Action::Renew(n, hold) => self.step(&mut next, n, |owner, fence| Event::Renew {
                owner,
                fence,
                lease_until: at(self.now + LEASE),
                hold,
            }),
        }
        next
    }

    fn ask(&self, next: &mut Self, n: u8, wanted: u8) {
        let record = self.record.as_ref().map(Kept::record);
        let now = at(self.now);
        let ask = |record| {
            // A floor that never falls; the least that a store may hand in.
            decide(record, owner(n), payload(wanted), self.highest + 1, now)
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
                    state: KeptState::Reserved(holder, _, held),
                    payload,
                    ..
                }) = &self.record
                {
                    let own = *holder == n;
                    assert!(own || !held, "{self:?}: taken over while it is held");
                    assert!(
                        own || *payload == wanted,
                        "{self:?}: taken over by another payload"
                    );
                }
                self.grant(next, n, wanted, fence);
            }
            Decision::AlreadyOurs(fence) => {
                let record = self.record.as_ref().expect("a record");
                assert!(matches!(record.state, KeptState::Reserved(holder, _, _) if holder == n));
                assert_eq!(
                    (record.fence, record.payload),
                    (fence.get(), wanted),
                    "{self:?}"
                );
            }
            Decision::Replay { outcome, .. } => {
                let record = self.record.as_ref().expect("a record");
                let KeptState::Completed(kept, _, until, _) = &record.state else {
                    panic!("{self:?}: a replay of what is not completed");
                };
                assert!(*kept == outcome && until.is_none_or(|until| until > self.now));
                assert_eq!(record.payload, wanted, "{self:?}");
            }
            Decision::OutcomeGone => {
                let record = self.record.as_ref().expect("a record");
                let KeptState::Completed(_, _, Some(until), known) = record.state else {
                    panic!("{self:?}: what was not completed is gone");
                };
                assert!(until <= self.now && known.is_none_or(|known| known > self.now));
                assert_eq!(record.payload, wanted, "{self:?}");
            }
            Decision::InProgress { lease_until } => {
                let record = self.record.as_ref().expect("a record");
                let KeptState::Reserved(holder, until, _) = record.state else {
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
                let lapsed = matches!(record.state, KeptState::Reserved(_, Some(until), true) if until <= self.now);
                assert!(lapsed && record.payload == wanted, "{self:?}");
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
            && matches!(kept.state, KeptState::Reserved(holder, _, _) if holder == n))
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
        let begins_to_hold_late = matches!(
            event(owner(n), Fence::new(fence)),
            Event::Renew { hold: true, .. }
        ) && matches!(&self.record, Some(kept) if matches!(kept.state, KeptState::Reserved(_, Some(until), false) if until <= self.now));
        assert_eq!(
            answer.is_ok(),
            self.holds(n, fence) && !begins_to_hold_late,
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
            if let KeptState::Reserved(_, Some(until), _) = kept.state {
                next.granted[usize::from(n)] = Some((fence, until));
            }
        }
    }

    /// What holds from one moment to the next, whatever happens.
    fn check(&self, next: &Self) {
        if let Some(Kept {
            state: KeptState::Completed(_, _, _, until),
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
