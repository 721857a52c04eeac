//! One call at a time under one record in one process, before a connection is taken: a thousand
//! duplicates use one connection, not the whole pool.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

use crate::error::{Error, ErrorKind};
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;

/// One record: in this pool, in this table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lane {
    pub(crate) pool: usize,
    pub(crate) table: Arc<str>,
    pub(crate) id: RecordId,
    /// Set where the table's name alone does not tell which table it is: different for every call.
    pub(crate) alone: Option<u64>,
}

impl Lane {
    /// Whether both are of one record, as far as is known here.
    pub(crate) fn is_of_the_record_of(&self, other: &Self) -> bool {
        (self.pool, &self.table, self.id) == (other.pool, &other.table, other.id)
    }
}

static FLIGHTS: LazyLock<Mutex<HashMap<Lane, Flight>>> = LazyLock::new(Mutex::default);

#[derive(Debug)]
struct Flight {
    fingerprint: Fingerprint,
    stage: watch::Receiver<Stage>,
}

/// How far the call that goes first has come.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// It looks at the record: nobody knows yet whether there is one, and with which payload.
    Looking,
    /// Somebody outside this process runs the call.
    Elsewhere,
    /// Its body runs.
    Running,
    /// The outcome is committed.
    Landed(Bytes),
    /// The store could not be used: nothing ran.
    Failed(Arc<Error>),
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
    stage: watch::Sender<Stage>,
}

/// A call that waits for the first one.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) fingerprint: Fingerprint,
    stage: watch::Receiver<Stage>,
}

pub(crate) fn join(lane: Lane, fingerprint: Fingerprint) -> Joined {
    let mut flights = FLIGHTS.lock().unwrap_or_else(PoisonError::into_inner);
    match flights.entry(lane) {
        Entry::Occupied(flight) => {
            let Flight { fingerprint, stage } = flight.get();
            Joined::Behind(Follower {
                fingerprint: *fingerprint,
                stage: stage.clone(),
            })
        }
        Entry::Vacant(place) => {
            let lane = place.key().clone();
            let (sender, stage) = watch::channel(Stage::Looking);
            place.insert(Flight { fingerprint, stage });
            Joined::First(Leader {
                lane,
                stage: sender,
            })
        }
    }
}

/// Of a call that nobody stands behind.
pub(crate) fn alone(lane: Lane, fingerprint: Fingerprint) -> Leader {
    match join(lane.clone(), fingerprint) {
        Joined::First(leader) => leader,
        // Its lane is its own, so there is none in front. It would be answered by itself.
        Joined::Behind(_) => Leader {
            lane,
            stage: watch::channel(Stage::Looking).0,
        },
    }
}

impl Leader {
    pub(crate) fn lane(&self) -> &Lane {
        &self.lane
    }

    pub(crate) fn runs_elsewhere(&self) {
        self.stage.send_replace(Stage::Elsewhere);
    }

    pub(crate) fn runs(&self) {
        self.stage.send_replace(Stage::Running);
    }

    /// Hands a committed outcome to everybody who waits.
    pub(crate) fn land(self, outcome: Bytes) {
        self.stage.send_replace(Stage::Landed(outcome));
    }

    /// Ends before its body ran. Where the store is the reason, those behind need not find it out one
    /// after another.
    pub(crate) fn fail(self, error: Error) -> Error {
        use ErrorKind as K;
        if let K::StoreUnavailable | K::StoreRefused | K::StoreExhausted | K::Schema = error.kind()
        {
            let failure = Arc::new(error.again());
            self.stage.send_replace(Stage::Failed(failure));
        }
        error
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
    /// The first of these stages that the call in front reaches; `None` when it ended without.
    pub(crate) async fn reaches(&mut self, wanted: fn(&Stage) -> bool) -> Option<Stage> {
        // An error means that the leader is gone: what it left last counts.
        let _ = self.stage.wait_for(wanted).await;
        Some(self.stage.borrow().clone()).filter(wanted)
    }

    /// Whether the call in front still looks.
    pub(crate) fn looks(&self) -> bool {
        matches!(*self.stage.borrow(), Stage::Looking)
    }

    /// Whether the call in front, ended or not, has last found a body that runs elsewhere.
    pub(crate) fn saw_it_run_elsewhere(&self) -> bool {
        matches!(*self.stage.borrow(), Stage::Elsewhere)
    }
}
