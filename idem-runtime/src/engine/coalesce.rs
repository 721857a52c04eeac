//! One call at a time under one record in one process, before a connection is taken: a thousand
//! duplicates use one connection, not the whole pool.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{LazyLock, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

use crate::fingerprint::Fingerprint;
use crate::key::RecordId;

/// A record of one pool.
pub(crate) type Lane = (usize, RecordId);

static FLIGHTS: LazyLock<Mutex<HashMap<Lane, Flight>>> = LazyLock::new(Mutex::default);

#[derive(Debug)]
struct Flight {
    fingerprint: Fingerprint,
    landed: watch::Receiver<Option<Bytes>>,
}

/// What a call finds.
#[derive(Debug)]
pub(crate) enum Joined {
    /// It goes first; the others wait for it.
    First(Leader),
    /// Another call is at it.
    Behind(Follower),
}

/// The call that goes first. Dropping it wakes the others: with the committed outcome if it has
/// landed one, else to find out for themselves.
#[derive(Debug)]
pub(crate) struct Leader {
    lane: Lane,
    landing: watch::Sender<Option<Bytes>>,
}

/// A call that waits for the first one.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) fingerprint: Fingerprint,
    landed: watch::Receiver<Option<Bytes>>,
}

pub(crate) fn join(lane: Lane, fingerprint: Fingerprint) -> Joined {
    let mut flights = FLIGHTS.lock().unwrap_or_else(PoisonError::into_inner);
    match flights.entry(lane) {
        Entry::Occupied(flight) => {
            let Flight {
                fingerprint,
                landed,
            } = flight.get();
            Joined::Behind(Follower {
                fingerprint: *fingerprint,
                landed: landed.clone(),
            })
        }
        Entry::Vacant(place) => {
            let (landing, landed) = watch::channel(None);
            place.insert(Flight {
                fingerprint,
                landed,
            });
            Joined::First(Leader { lane, landing })
        }
    }
}

impl Leader {
    /// Hands a committed outcome to everybody who waits.
    pub(crate) fn land(self, outcome: Bytes) {
        self.landing.send_replace(Some(outcome));
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        FLIGHTS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.lane);
    }
}

impl Follower {
    /// The committed outcome, or `None` when the first call ended without one.
    pub(crate) async fn landed(mut self) -> Option<Bytes> {
        // An error means that the leader is gone: what it left last counts.
        let _ = self.landed.wait_for(Option::is_some).await;
        self.landed.borrow_and_update().clone()
    }
}
