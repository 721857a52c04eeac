use bytes::Bytes;

use super::record::{Fence, Owner, Record, State};
use crate::clock::Moment;
use crate::fingerprint::Fingerprint;

/// Something that happens to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A reservation that [`decide`](super::decide) granted.
    Reserve {
        /// Who.
        owner: Owner,
        /// Under which number.
        fence: Fence,
        /// For which payload.
        fingerprint: Fingerprint,
        /// Until when.
        lease_until: Option<Moment>,
    },
    /// The body has succeeded, or failed for good.
    Complete {
        /// Who.
        owner: Owner,
        /// Under which number.
        fence: Fence,
        /// The envelope.
        outcome: Bytes,
        /// Until when it is replayed.
        keep_until: Option<Moment>,
        /// Until when the key is known, at least as long.
        known_until: Option<Moment>,
    },
    /// The body has failed and may be tried again.
    Release {
        /// Who.
        owner: Owner,
        /// Under which number.
        fence: Fence,
    },
    /// The body is still running.
    Renew {
        /// Who.
        owner: Owner,
        /// Under which number.
        fence: Fence,
        /// Until when.
        lease_until: Moment,
        /// Whether the reservation is held from now on after its lease: the body is about to begin.
        hold: bool,
    },
}

/// An event that does not apply to the record as it is: it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The record is not held by this owner under this number.
    NotHeld,
    /// The record is held, or its outcome is kept.
    NotFree,
    /// A reservation's number must be higher than the one before.
    FenceNotHigher,
}

/// Applies an event. `Ok(None)` means that the record is gone.
///
/// # Errors
/// [`Refused`]; the record stays as it was.
pub fn apply(
    record: Option<&Record>,
    event: Event,
    now: Moment,
) -> Result<Option<Record>, Refused> {
    match event {
        Event::Reserve {
            owner,
            fence,
            fingerprint,
            lease_until,
        } => {
            if let Some(record) = record {
                if !record.is_over(now) && !record.is_lapsed(now) {
                    return Err(Refused::NotFree);
                }
                if fence <= record.fence {
                    return Err(Refused::FenceNotHigher);
                }
            }
            Ok(Some(Record {
                fingerprint,
                fence,
                state: State::Reserved {
                    owner,
                    lease_until,
                    held: false,
                },
            }))
        }
        Event::Complete {
            owner,
            fence,
            outcome,
            keep_until,
            known_until,
        } => {
            let held = held(record, owner, fence)?;
            let state = State::Completed {
                outcome,
                recorded_at: now,
                keep_until,
                known_until,
            };
            Ok(Some(Record {
                state,
                ..held.clone()
            }))
        }
        Event::Release { owner, fence } => held(record, owner, fence).map(|_| None),
        Event::Renew {
            owner,
            fence,
            lease_until,
            hold,
        } => {
            let record = held(record, owner, fence)?;
            // A request that was on its way for so long does not begin to hold: nobody waits for its
            // answer any more.
            if hold && !record.is_held() && record.is_lapsed(now) {
                return Err(Refused::NotHeld);
            }
            let state = State::Reserved {
                owner,
                lease_until: Some(lease_until),
                held: hold || record.is_held(),
            };
            Ok(Some(Record {
                state,
                ..record.clone()
            }))
        }
    }
}

/// A lease that is over but was not taken over still counts as held: nobody else can have run.
fn held(record: Option<&Record>, owner: Owner, fence: Fence) -> Result<&Record, Refused> {
    match record {
        Some(record) if record.fence == fence && record.is_reserved_by(owner) => Ok(record),
        _ => Err(Refused::NotHeld),
    }
}
