//! Decides a request to reserve.

use bytes::Bytes;

use super::record::{Fence, Owner, Record, State};
use crate::clock::Moment;
use crate::fingerprint::Fingerprint;

/// What a request to reserve gets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// The record is free: reserve it under this fence.
    Grant(Fence),
    /// The request was sent twice and its first copy won: the record is held by this very owner.
    AlreadyOurs(Fence),
    /// Answer from this outcome.
    Replay {
        /// The envelope.
        outcome: Bytes,
        /// When it was recorded.
        recorded_at: Moment,
        /// Until when it is replayed; `None` for ever.
        keep_until: Option<Moment>,
    },
    /// Somebody else holds it, until this moment if there is one.
    InProgress {
        /// When others may take it over.
        lease_until: Option<Moment>,
    },
    /// The key is known; its outcome is no longer kept.
    OutcomeGone,
    /// The key is known with another payload.
    Mismatch,
    /// Its lease is over without an outcome, and it is held until somebody decides.
    Abandoned,
}

/// What becomes of a reservation whose lease ends without an outcome: its process died, or stood
/// still for too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnCrash {
    /// The next call with the same payload takes it over: the body runs again.
    #[default]
    Rerun,
    /// It stays as it is until somebody has found out about the effect and forgets the record.
    ///
    /// That begins with the first renewal, which the engine asks for before the body: a claim whose
    /// answer never came, and whose body never ran, holds nothing.
    Hold,
}

/// Decides a request to reserve.
///
/// `fence_floor` is a number of the store's that never falls (a counter, a clock in microseconds):
/// fences grow even where the record was removed in between.
///
/// A reservation without the end of a lease is held until it is released or completed: "not given"
/// never reads as "over" (nor, in a store, as "for ever" where a lease was asked for).
///
/// A lapsed reservation remembers its payload as a running one does: its effect may be done, and a
/// call with another payload is told so.
#[must_use]
pub fn decide(
    record: Option<&Record>,
    owner: Owner,
    fingerprint: Fingerprint,
    fence_floor: u64,
    now: Moment,
) -> Decision {
    let Some(record) = record else {
        return Decision::Grant(Fence::new(fence_floor));
    };
    let next = Fence::new(record.fence.get().saturating_add(1).max(fence_floor));
    // A call that asks has not run its body yet: its own reservation is never in doubt.
    if record.is_over(now) || record.is_lapsed(now) && record.is_reserved_by(owner) {
        return Decision::Grant(next);
    }
    if !record.fingerprint.matches(fingerprint) {
        return Decision::Mismatch;
    }
    if record.is_lapsed(now) {
        return match record.is_held() {
            true => Decision::Abandoned,
            false => Decision::Grant(next),
        };
    }
    if record.is_outcome_gone(now) {
        return Decision::OutcomeGone;
    }
    match &record.state {
        State::Reserved { owner: holder, .. } if *holder == owner => {
            Decision::AlreadyOurs(record.fence)
        }
        State::Reserved { lease_until, .. } => Decision::InProgress {
            lease_until: *lease_until,
        },
        State::Completed {
            outcome,
            recorded_at,
            keep_until,
            ..
        } => Decision::Replay {
            outcome: outcome.clone(),
            recorded_at: *recorded_at,
            keep_until: *keep_until,
        },
        State::Tombstone { .. } => Decision::OutcomeGone,
    }
}
