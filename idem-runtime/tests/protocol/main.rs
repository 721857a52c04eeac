//! The protocol, checked over every sequence of events up to a depth, and the memory store against
//! a model that only remembers what happened.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod model;
mod worlds;

use idem_runtime::clock::Moment;
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::protocol::{Decision, Fence, Owner, Record, State, decide};

fn owner(n: u8) -> Owner {
    Owner::from_bytes([n; 16])
}

fn payload(n: u8) -> Fingerprint {
    let mut bytes = [n; 17];
    // Fingerprints of other versions are not compared.
    bytes[0] = 1;
    Fingerprint::from_bytes(bytes)
}

fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

#[test]
fn a_reservation_without_an_end_is_never_taken_over() {
    let record = Record {
        fingerprint: payload(1),
        fence: Fence::new(3),
        state: State::Reserved {
            owner: owner(1),
            lease_until: None,
            held: false,
        },
    };
    let late = at(u64::MAX);
    let decision = decide(Some(&record), owner(2), payload(1), 9, late);
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
    let ask = |wanted, now| decide(Some(&record), owner(2), payload(wanted), 1, at(now));
    assert_eq!(ask(1, 9), Decision::OutcomeGone);
    assert_eq!(ask(2, 9), Decision::Mismatch);
    assert_eq!(ask(2, 10), Decision::Grant(Fence::new(4)));
}
