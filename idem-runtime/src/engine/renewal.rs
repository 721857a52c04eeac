use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use super::term::Term;
use crate::error::Error;
use crate::store::{Held, Reservation, Store};

/// Keeps a lease alive for as long as it is polled: it is part of the call's own future and ends
/// with it, however that ends.
pub(crate) struct Renewal {
    lost: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Renewal {
    /// Renews a third of the lease after `sent_at`, when the last request that the lease counts
    /// from was sent, and so on.
    pub(super) fn new<S: Store>(
        store: S,
        reservation: Reservation,
        lease: Duration,
        sent_at: Instant,
    ) -> Self {
        let next = sent_at + lease / 3;
        Self::of(StoreLease::new(store, reservation, lease), sent_at, next)
    }

    fn of<S: Store>(mut held: StoreLease<S>, sent_at: Instant, next: Instant) -> Self {
        Self {
            lost: Box::pin(async move {
                let lease = held.lease;
                renew_until_lost(&mut held, lease, sent_at + lease, next, None).await;
                held.warn();
            }),
        }
    }

    /// Ends when the lease is lost.
    pub(super) async fn until_lost(self) {
        self.lost.await;
    }
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renewal")
    }
}

/// Something that is held for a time and can be held longer.
pub(crate) trait Renew: Send {
    /// Asks for the whole time again, from now.
    fn renew(&mut self) -> impl Future<Output = Result<Held, Error>> + Send;
}

/// A reservation in a leased store.
#[derive(Debug)]
pub(crate) struct StoreLease<S> {
    pub(crate) store: S,
    pub(crate) reservation: Reservation,
    pub(crate) lease: Duration,
}

impl<S: Store> StoreLease<S> {
    pub(crate) fn new(store: S, reservation: Reservation, lease: Duration) -> Self {
        Self {
            store,
            reservation,
            lease,
        }
    }

    pub(crate) fn warn(&self) {
        let Reservation { id, fence, .. } = &self.reservation;
        tracing::warn!(record = %id, %fence, "the lease was lost");
    }
}

impl<S: Store> Renew for StoreLease<S> {
    async fn renew(&mut self) -> Result<Held, Error> {
        self.store.renew(&self.reservation, self.lease).await
    }
}

/// The end of the lease is counted here from the moment the last request that succeeded was *sent*:
/// the store started counting no earlier.
///
/// With a `term`, its end is the end: what may be over is lost, though the store might still know
/// better. Without one, a store that nobody else has asked meanwhile is asked once more.
pub(crate) async fn renew_until_lost(
    held: &mut impl Renew,
    lease: Duration,
    mut deadline: Instant,
    mut next: Instant,
    term: Option<&Term>,
) {
    let interval = lease / 3;
    loop {
        tokio::time::sleep_until(next).await;
        let now = Instant::now();
        let patience = match deadline.saturating_duration_since(now) {
            Duration::ZERO if term.is_some() => return,
            // Woken up too late, as after a blocking body: the store may have given the record away,
            // or not, and still knows.
            Duration::ZERO => interval,
            left => left.min(interval),
        };
        match tokio::time::timeout(patience, held.renew()).await {
            Ok(Ok(Held::Yes)) => {
                deadline = now + lease;
                next = now + interval;
                if term.is_some_and(|term| !term.extend(deadline)) {
                    return;
                }
            }
            Ok(Ok(Held::No)) => return,
            Ok(Err(_)) | Err(_) if Instant::now() >= deadline => return,
            Ok(Err(_)) | Err(_) => next = (Instant::now() + interval / 4).min(deadline),
        }
    }
}
