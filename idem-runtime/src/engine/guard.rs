//! What is left to do when a call's future is dropped.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::pending::Pending;
use super::recording;
use crate::key::RecordId;
use crate::operation::{Call, OnCancel};
use crate::protocol::{OnCrash, Owner};
use crate::store::{Reservation, Store};

/// Holds a reservation, and does what is left to do when it is dropped.
#[derive(Debug)]
pub(super) struct Guard<S: Store> {
    store: S,
    reservation: Reservation,
    call: Call,
    on_drop: OnDrop,
    /// The outcome, from the first time on that it could not be recorded at once.
    pending: OnceLock<Option<Pending>>,
}

/// What becomes of a reservation whose guard is dropped.
#[derive(Debug)]
enum OnDrop {
    /// It ends with its lease.
    Hold,
    /// It is given back.
    Release,
    /// The body has ended: this outcome is recorded.
    Record(Bytes),
}

impl<S: Store> Guard<S> {
    pub(super) fn new(store: S, reservation: Reservation, call: Call) -> Self {
        let on_drop = match call.on_cancel() {
            OnCancel::Hold => OnDrop::Hold,
            OnCancel::Release => OnDrop::Release,
        };
        Self {
            store,
            reservation,
            call,
            on_drop,
            pending: OnceLock::new(),
        }
    }

    pub(super) fn call(&self) -> &Call {
        &self.call
    }

    pub(super) fn store(&self) -> &S {
        &self.store
    }

    pub(super) fn reservation(&self) -> &Reservation {
        &self.reservation
    }

    pub(super) fn holds(&mut self) {
        self.on_drop = OnDrop::Hold;
    }

    pub(super) fn releases(&mut self) {
        self.on_drop = OnDrop::Release;
    }

    /// Lets repeats in this process know the outcome until it is recorded.
    pub(super) fn pend(&self, outcome: &Bytes) {
        let pending = || Pending::new(&self.store, &self.reservation, outcome);
        let _ = self.pending.get_or_init(pending);
    }

    pub(super) fn records(&mut self, outcome: Bytes) {
        self.on_drop = OnDrop::Record(outcome);
    }
}

impl<S: Store> Drop for Guard<S> {
    fn drop(&mut self) {
        let on_drop = std::mem::replace(&mut self.on_drop, OnDrop::Hold);
        if matches!(on_drop, OnDrop::Hold) {
            return;
        }
        let (store, reservation) = (self.store.clone(), self.reservation.clone());
        match on_drop {
            OnDrop::Hold => {}
            OnDrop::Release => detach(async move {
                let _ = store.release(&reservation).await;
            }),
            OnDrop::Record(outcome) => {
                self.pend(&outcome);
                let (call, pending) = (self.call.clone(), self.pending.take().flatten());
                detach(recording::go_on(store, reservation, call, outcome, pending));
            }
        }
    }
}

/// A request to reserve whose answer has not arrived. Its body has not run: when it never arrives,
/// the reservation it may have made goes back whatever the policy.
#[derive(Debug)]
pub(super) struct Unanswered<'a, S: Store> {
    store: &'a S,
    id: RecordId,
    owner: Owner,
    /// For how long giving it back is tried.
    patience: Duration,
    answered: bool,
}

impl<'a, S: Store> Unanswered<'a, S> {
    pub(super) fn new(store: &'a S, id: RecordId, owner: Owner) -> Self {
        Self {
            store,
            id,
            owner,
            // Should it fail, the lease ends by itself.
            patience: Duration::ZERO,
            answered: false,
        }
    }

    /// From here on the reservation may outlast its lease, which began to run before this: a request
    /// that is carried out after its end does not hold it.
    pub(super) fn may_be_held(&mut self, lease: Duration) {
        self.patience = lease + lease / 2;
    }

    pub(super) fn answered(mut self) {
        self.answered = true;
    }
}

impl<S: Store> Drop for Unanswered<'_, S> {
    fn drop(&mut self) {
        if !self.answered {
            let (store, id, owner) = (self.store.clone(), self.id, self.owner);
            let until = Instant::now() + self.patience;
            detach(async move {
                let mut pause = Duration::from_millis(20);
                while !given_back(&store, id, owner).await && Instant::now() < until {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(2));
                }
            });
        }
    }
}

/// `false`: the store could not be asked.
async fn given_back<S: Store>(store: &S, id: RecordId, owner: Owner) -> bool {
    let record = match store.lookup(id).await {
        Ok(Some(stored)) => stored.record,
        Ok(None) => return true,
        Err(_) => return false,
    };
    if !record.is_reserved_by(owner) {
        return true;
    }
    let reservation = Reservation {
        id,
        owner,
        fence: record.fence,
        fingerprint: record.fingerprint,
        on_crash: OnCrash::Rerun,
    };
    store.release(&reservation).await.is_ok()
}

/// Runs on without anybody waiting. Without a runtime, or with one that is shutting down, nothing
/// runs, and the lease ends by itself.
pub(crate) fn detach(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        drop(runtime.spawn(work));
    }
}
