use std::future::Future;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{Front, Tier};
use crate::error::Error;
use crate::key::RecordId;
use crate::retention::{Left, Retention};
use crate::store::{Held, Kept, Request, Reservation, Reserved, Store, Stored, Until};

/// A leased store behind a front. It is a [`Store`] and promises what the store behind it promises.
///
/// The first repeat of a call reads the record and fills the front, the others are answered from
/// there. A store that does not tell how long a record is still kept
/// ([`Left::Unknown`]) cannot fill it.
#[derive(Clone, Debug)]
pub struct Tiered<F, S> {
    tier: Tier<F>,
    store: S,
}

impl<F: Front, S: Store> Tiered<F, S> {
    /// A front, or a [`Tier`] made to measure, before a store.
    #[must_use]
    pub fn new(front: impl Into<Tier<F>>, store: S) -> Self {
        Self {
            tier: front.into(),
            store,
        }
    }

    /// The store behind.
    pub fn store(&self) -> &S {
        &self.store
    }
}

/// What a copy answers; `None`: it lacks what a leased store's answer has.
fn replay(kept: Kept, request: &Request<'_>) -> Option<Reserved> {
    if !kept.fingerprint.matches(request.fingerprint) {
        return Some(Reserved::Mismatch);
    }
    Some(Reserved::Completed {
        recorded_at: kept.recorded_at?,
        outcome: kept.outcome,
        left: Left::Unknown,
    })
}

impl<F: Front, S: Store> Store for Tiered<F, S> {
    fn identity(&self) -> Option<usize> {
        self.store.identity()
    }

    fn namespace(&self) -> &str {
        self.store.namespace()
    }

    /// # Cancel safety
    /// As that of the store behind.
    async fn reserve(&self, request: &Request<'_>) -> Result<Reserved, Error> {
        if !self.tier.is_new(request.id)
            && let Some(kept) = self.tier.get(request.id).await
            && let Some(reserved) = replay(kept, request)
        {
            return Ok(reserved);
        }
        let asked_at = Instant::now();
        let request = &Request {
            to_copy: true,
            ..*request
        };
        let reserved = self.store.reserve(request).await?;
        if let Reserved::Completed {
            outcome,
            recorded_at,
            left,
        } = &reserved
            && let Some(until) = Until::of(asked_at, *left)
        {
            let kept = Kept::new(request.fingerprint, outcome.clone(), Some(*recorded_at));
            self.tier.put(request.id, &kept, until).await;
        }
        Ok(reserved)
    }

    async fn complete(
        &self,
        reservation: &Reservation,
        outcome: Bytes,
        retention: Retention,
    ) -> Result<Held, Error> {
        self.store.complete(reservation, outcome, retention).await
    }

    async fn release(&self, reservation: &Reservation) -> Result<Held, Error> {
        self.store.release(reservation).await
    }

    async fn renew(&self, reservation: &Reservation, lease: Duration) -> Result<Held, Error> {
        self.store.renew(reservation, lease).await
    }

    /// The truth, from the store behind.
    async fn lookup(&self, id: RecordId) -> Result<Option<Stored>, Error> {
        self.store.lookup(id).await
    }

    /// Removes the record, then its copy. Where the front cannot be told this is logged: it may
    /// replay the outcome until its `max_age` is over.
    ///
    /// # Cancel safety
    /// Dropped between the two steps, the copy stays that long as well; forget again.
    async fn forget(&self, id: RecordId) -> Result<bool, Error> {
        let forgotten = self.store.forget(id).await;
        self.tier.remove(id).await;
        forgotten
    }

    async fn purge(&self, limit: usize) -> Result<usize, Error> {
        self.store.purge(limit).await
    }

    fn changed(&self, id: RecordId) -> impl Future<Output = ()> + Send {
        self.store.changed(id)
    }
}
