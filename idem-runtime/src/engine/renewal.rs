use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

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
        Self {
            lost: Box::pin(renew_until_lost(
                store,
                reservation,
                lease,
                sent_at + lease,
                next,
            )),
        }
    }

    /// Renews at once, and so on.
    pub(super) fn at_once<S: Store>(store: S, reservation: Reservation, lease: Duration) -> Self {
        let now = Instant::now();
        Self {
            lost: Box::pin(renew_until_lost(
                store,
                reservation,
                lease,
                now + lease,
                now,
            )),
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

/// The end of the lease is counted here from the moment the last request that succeeded was *sent*:
/// the store started counting no earlier.
async fn renew_until_lost<S: Store>(
    store: S,
    reservation: Reservation,
    lease: Duration,
    mut deadline: Instant,
    mut next: Instant,
) {
    let interval = lease / 3;
    loop {
        tokio::time::sleep_until(next).await;
        let now = Instant::now();
        // Woken up too late, as after a blocking body: the store may have given the record away, or
        // not, and still knows.
        let patience = match deadline.saturating_duration_since(now) {
            Duration::ZERO => interval,
            left => left.min(interval),
        };
        match tokio::time::timeout(patience, store.renew(&reservation, lease)).await {
            Ok(Ok(Held::Yes)) => {
                deadline = now + lease;
                next = now + interval;
            }
            Ok(Ok(Held::No)) => break,
            Ok(Err(_)) | Err(_) if Instant::now() >= deadline => break,
            Ok(Err(_)) | Err(_) => next = (Instant::now() + interval / 4).min(deadline),
        }
    }
    tracing::warn!(record = %reservation.id, fence = %reservation.fence, "the lease was lost");
}
