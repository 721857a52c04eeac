//! How a call stands, asked by its key and without running anything.
//!
//! A call whose answer was lost (a time-out, a connection that broke, a process that died) is
//! *unknown*, and the way to know is normally to **call again**: with the same arguments the call is
//! answered from its record, or waits for the one that is still running, or runs if nothing of it
//! remained. Ask for the status instead where calling again is not yours to do: a support desk, a
//! reconciliation job, a client that may only poll, a decision whether to go on *without* the call.
//!
//! `#[idempotent(…, companion = pay_call)]` generates a function beside the annotated one that takes
//! by reference exactly what the key is made of, and gives a [`CallRef`].
//!
//! ```
//! # use idem_macros::idempotent;
//! use idem_runtime::{status::Status, store::memory::MemoryStore};
//!
//! # #[derive(Debug)] struct Failure(#[allow(dead_code)] idem_runtime::Error);
//! # impl From<idem_runtime::Error> for Failure { fn from(error: idem_runtime::Error) -> Self { Self(error) } }
//! #[idempotent(key = "{order}", ttl = "1d", store = store, companion = pay_call
//! # , crate = ::idem_runtime
//! )]
//! async fn pay(store: &MemoryStore, order: u64, cents: i64) -> Result<i64, Failure> {
//!     Ok(cents)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Failure> {
//! let store = MemoryStore::new();
//! let call = pay_call(&7)?; // no amount: it is no part of the key
//! assert!(matches!(call.status(&store).await?, Status::Absent));
//!
//! pay(&store, 7, 500).await?;
//! match call.status(&store).await? {
//!     Status::Completed(done) => assert_eq!(done.outcome?, 500),
//!     other => panic!("{other:?}"),
//! }
//! assert!(call.forget(&store).await?);
//! # Ok(()) }
//! ```
//!
//! # What an answer is worth
//! It was true when the store was asked. [`Status::Absent`] says that nothing is recorded and nobody
//! holds the key *now*: a request that is still on its way may begin a moment later.
//! [`Status::Completed`] stays true until the record's time is over or it is forgotten.

mod ask;
mod call;
#[cfg(feature = "_sqlx")]
mod sql;
#[cfg(all(feature = "_sqlx", feature = "tiered"))]
mod tiered;

use std::time::Duration;

use bytes::Bytes;

use crate::clock::Moment;
use crate::error::Error;
use crate::outcome::{self, Recorded};
use crate::protocol::{Fence, Owner, State};
use crate::retention::Left;
use crate::store::Stored;

pub use ask::{Asked, of_record};
pub use call::CallRef;

/// How a call stands. `A` is its answer: the function's `Result`, or the envelope's bytes where only
/// the record's id is known ([`of_record`]).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Status<A> {
    /// Nothing is recorded and nobody holds the key: it never ran, its transaction was rolled back,
    /// it was released or forgotten, or its time is over. A call with this key would run.
    Absent,
    /// Somebody is at it.
    InProgress(Holder),
    /// Somebody was at it and did not come to an end: the lease is over without an outcome, or (on
    /// MySQL) a reservation was committed without one. Whether the effect happened is unknown. What
    /// a call with this key does is said by its operation (`on_crash`); on MySQL it is refused.
    Abandoned(Holder),
    /// It is done, and its answer is replayed.
    Completed(Completed<A>),
    /// It is done, and its answer is no longer kept (`tombstone`), or was too large to be.
    OutcomeGone(Gone),
}

/// Who holds a record, as far as the store knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The token of the attempt that holds it; also in the log of the process that made it.
    pub owner: Option<Owner>,
    /// Its fencing number (leased stores).
    pub fence: Option<Fence>,
    /// Since when, by the store's clock. In Postgres the beginning of the transaction that is at the
    /// record.
    pub since: Option<Moment>,
    /// When its lease ends, by the store's clock; it may be renewed before. `None` where a
    /// transaction holds it.
    pub lease_until: Option<Moment>,
    /// How long that is from now.
    pub free_in: Option<Duration>,
    /// The database's name for the connection that holds it (Postgres: process, application and
    /// address), for people to read.
    pub connection: Option<String>,
}

/// A completed call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completed<A> {
    /// What the first run answered.
    pub outcome: A,
    /// When that was recorded, by the store's clock.
    pub recorded_at: Option<Moment>,
    /// How long it is still replayed.
    pub left: Left,
}

/// A completed call whose answer is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gone {
    /// When it was recorded, by the store's clock.
    pub recorded_at: Option<Moment>,
    /// How long the key is still known.
    pub left: Left,
    /// The size of an answer that was too large to be kept, in bytes.
    pub bytes: Option<u64>,
}

impl<A> Status<A> {
    /// Whether a call with this key would find nothing in its way.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// Whether somebody is at it.
    #[must_use]
    pub fn is_in_progress(&self) -> bool {
        matches!(self, Self::InProgress(_))
    }

    /// Whether it is done, its answer kept or not.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Completed(_) | Self::OutcomeGone(_))
    }
}

impl Status<Bytes> {
    /// A record that is completed with this envelope.
    pub(crate) fn recorded(
        envelope: Bytes,
        recorded_at: Option<Moment>,
        left: Left,
        known: Left,
    ) -> Result<Self, Error> {
        let bytes = match outcome::recorded(&envelope)? {
            Recorded::Ok(_) | Recorded::Err(_) => {
                return Ok(Self::Completed(Completed {
                    outcome: envelope,
                    recorded_at,
                    left,
                }));
            }
            Recorded::Tombstone | Recorded::Unrecordable { .. } => None,
            Recorded::Oversize { bytes } => Some(bytes),
        };
        Ok(Self::OutcomeGone(Gone {
            recorded_at,
            left: known,
            bytes,
        }))
    }

    /// A record of a leased store.
    pub(crate) fn of(stored: Stored) -> Result<Self, Error> {
        let now = stored.read_at;
        let left = |until: Option<Moment>| match (until, now) {
            (None, _) => Left::Forever,
            (Some(until), Some(now)) => Left::For(now.until(until)),
            (Some(_), None) => Left::Unknown,
        };
        let record = stored.record;
        let lapsed = now.is_some_and(|now| record.is_lapsed(now));
        match record.state {
            State::Reserved {
                owner, lease_until, ..
            } => {
                let until = lease_until.zip(now);
                let holder = Holder {
                    owner: Some(owner),
                    fence: Some(record.fence),
                    since: Some(stored.created_at),
                    lease_until,
                    free_in: until.map(|(until, now)| now.until(until)),
                    connection: None,
                };
                Ok(if lapsed {
                    Self::Abandoned(holder)
                } else {
                    Self::InProgress(holder)
                })
            }
            State::Completed {
                outcome,
                recorded_at,
                keep_until,
                known_until,
            } => {
                let (left, known) = (left(keep_until), left(known_until));
                Self::recorded(outcome, Some(recorded_at), left, known)
            }
            State::Tombstone { until } => Ok(Self::OutcomeGone(Gone {
                recorded_at: None,
                left: left(until),
                bytes: None,
            })),
        }
    }

    /// The same with what `decode` makes of the envelope.
    pub(crate) fn decoded<A>(
        self,
        decode: impl FnOnce(&[u8]) -> Result<A, Error>,
    ) -> Result<Status<A>, Error> {
        Ok(match self {
            Self::Absent => Status::Absent,
            Self::InProgress(holder) => Status::InProgress(holder),
            Self::Abandoned(holder) => Status::Abandoned(holder),
            Self::OutcomeGone(gone) => Status::OutcomeGone(gone),
            Self::Completed(done) => Status::Completed(Completed {
                outcome: decode(&done.outcome)?,
                recorded_at: done.recorded_at,
                left: done.left,
            }),
        })
    }
}
