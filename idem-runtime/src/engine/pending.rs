//! Outcomes that wait to be recorded: known in this process, and not yet in their store.
//!
//! A repeat that comes meanwhile, and that the store lets take the lapsed reservation over, must not run
//! the body: it finds the outcome here and records it itself.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::fingerprint::Fingerprint;
use crate::key::RecordId;
use crate::store::{Reservation, Store};

/// How many bytes of outcomes may wait at a time. One more is replaced by a marker, so that an outage of
/// the store does not fill the memory: its key stays closed and its value is with its first caller.
const MOST_BYTES: usize = 64 << 20;

/// One store, and one record in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    store: (TypeId, usize),
    id: RecordId,
}

struct Waiting {
    fingerprint: Fingerprint,
    outcome: Bytes,
    /// Recordings of this record that are under way.
    count: usize,
}

static WAITING: LazyLock<Mutex<HashMap<Place, Waiting>>> = LazyLock::new(Mutex::default);
static COUNT: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

fn waiting() -> MutexGuard<'static, HashMap<Place, Waiting>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn place<S: Store>(store: &S, id: RecordId) -> Option<Place> {
    let store = (TypeId::of::<S>(), store.identity()?);
    Some(Place { store, id })
}

/// An outcome is being recorded; it is known here for as long as this is held.
#[derive(Debug)]
pub(super) struct Pending {
    _place: Option<PlaceGuard>,
    bytes: usize,
}

#[derive(Debug)]
struct PlaceGuard(Place);

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Place({})", self.id)
    }
}

impl Pending {
    /// `None`: too much waits already.
    pub(super) fn new<S: Store>(
        store: &S,
        reservation: &Reservation,
        outcome: &Bytes,
    ) -> Option<Self> {
        let bytes = outcome.len();
        let fits = |sum: usize| sum.checked_add(bytes).filter(|sum| *sum <= MOST_BYTES);
        BYTES
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .ok()?;
        let place = place(store, reservation.id);
        if let Some(place) = place {
            let mut waiting = waiting();
            let entry = waiting.entry(place).or_insert_with(|| Waiting {
                fingerprint: reservation.fingerprint,
                outcome: outcome.clone(),
                count: 0,
            });
            entry.count += 1;
            COUNT.store(waiting.len(), Ordering::Release);
        }
        Some(Self {
            _place: place.map(PlaceGuard),
            bytes,
        })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for PlaceGuard {
    fn drop(&mut self) {
        let mut waiting = waiting();
        if let Some(entry) = waiting.get_mut(&self.0) {
            entry.count -= 1;
            if entry.count == 0 {
                waiting.remove(&self.0);
            }
        }
        COUNT.store(waiting.len(), Ordering::Release);
    }
}

/// The outcome that this process knows under a reservation that was just granted.
pub(super) fn known<S: Store>(store: &S, reservation: &Reservation) -> Option<Bytes> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let place = place(store, reservation.id)?;
    let waiting = waiting();
    let found = waiting.get(&place)?;
    found
        .fingerprint
        .matches(reservation.fingerprint)
        .then(|| found.outcome.clone())
}
