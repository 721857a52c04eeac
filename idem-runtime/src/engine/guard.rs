//! What is left to do when a call's future is dropped.

use std::future::Future;

use crate::key::RecordId;
use crate::operation::OnCancel;
use crate::protocol::{Owner, State};
use crate::store::{Reservation, Store};

/// Holds a reservation, and gives it back when it is dropped if it is told to.
#[derive(Debug)]
pub(super) struct Guard<S: Store> {
    store: S,
    reservation: Reservation,
    on_drop: OnCancel,
}

impl<S: Store> Guard<S> {
    pub(super) fn new(store: S, reservation: Reservation, on_drop: OnCancel) -> Self {
        Self {
            store,
            reservation,
            on_drop,
        }
    }

    pub(super) fn store(&self) -> &S {
        &self.store
    }

    pub(super) fn reservation(&self) -> &Reservation {
        &self.reservation
    }

    pub(super) fn on_drop(&mut self, what: OnCancel) {
        self.on_drop = what;
    }
}

impl<S: Store> Drop for Guard<S> {
    fn drop(&mut self) {
        if self.on_drop == OnCancel::Release {
            let (store, reservation) = (self.store.clone(), self.reservation.clone());
            detach(async move {
                let _ = store.release(&reservation).await;
            });
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
    answered: bool,
}

impl<'a, S: Store> Unanswered<'a, S> {
    pub(super) fn new(store: &'a S, id: RecordId, owner: Owner) -> Self {
        Self {
            store,
            id,
            owner,
            answered: false,
        }
    }

    pub(super) fn answered(mut self) {
        self.answered = true;
    }
}

impl<S: Store> Drop for Unanswered<'_, S> {
    fn drop(&mut self) {
        if !self.answered {
            let (store, id, owner) = (self.store.clone(), self.id, self.owner);
            detach(async move { give_back(&store, id, owner).await });
        }
    }
}

async fn give_back<S: Store>(store: &S, id: RecordId, owner: Owner) {
    let Ok(Some(stored)) = store.lookup(id).await else {
        return;
    };
    let record = stored.record;
    if matches!(record.state, State::Reserved { .. }) && record.is_reserved_by(owner) {
        let reservation = Reservation {
            id,
            owner,
            fence: record.fence,
            fingerprint: record.fingerprint,
        };
        let _ = store.release(&reservation).await;
    }
}

/// Runs on without anybody waiting. Without a runtime, or with one that is shutting down, nothing
/// runs, and the lease ends by itself.
pub(crate) fn detach(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        drop(runtime.spawn(work));
    }
}
