//! Renews a lease while it is held, and tells how it was lost.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use super::term::Term;
use crate::error::{Error, ErrorKind};
use crate::operation::OnLostLease;
use crate::store::{Held, Reservation, Store};

/// Keeps a lease alive for as long as it is polled: it is part of the call's own future and ends
/// with it, however that ends.
pub(crate) struct Renewal {
    lost: Pin<Box<dyn Future<Output = Lost> + Send>>,
}

/// How a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Lost {
    /// The store says that the reservation is no longer held.
    TakenOver,
    /// It was not renewed in time. The store has not said that another call has it.
    Expired,
}

impl Lost {
    /// The error of a call whose body was dropped for it.
    pub(crate) fn kind(self) -> ErrorKind {
        match self {
            Self::TakenOver => ErrorKind::LostOwnership,
            Self::Expired => ErrorKind::LeaseExpired,
        }
    }
}

/// What is done when the lease may be over and the store has not said so.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AtDeadline<'t> {
    /// What may be over is lost, though the store might still know better: holders look at this term.
    End(&'t Term),
    /// The store is asked for as long as the lease, at most [`LONGEST_GRACE`]; then it is lost.
    Ask,
    /// The store is asked until it answers: the body runs on either way.
    AskOn,
}

/// How long a store that does not answer is asked after the end of a lease before live work is
/// dropped. Meanwhile another call may take the reservation over.
const LONGEST_GRACE: Duration = Duration::from_secs(5);

impl Renewal {
    /// Renews a third of the lease after `sent_at`, when the last request that the lease counts
    /// from was sent, and so on.
    pub(super) fn new<S: Store>(
        store: S,
        reservation: Reservation,
        lease: Duration,
        sent_at: Instant,
        on_lost_lease: OnLostLease,
    ) -> Self {
        let next = sent_at + lease / 3;
        let at_deadline = match on_lost_lease {
            OnLostLease::Cancel => AtDeadline::Ask,
            OnLostLease::Continue => AtDeadline::AskOn,
        };
        let held = StoreLease::new(store, reservation, lease);
        Self::of(held, sent_at, next, at_deadline)
    }

    fn of<S: Store>(
        mut held: StoreLease<S>,
        sent_at: Instant,
        next: Instant,
        at_deadline: AtDeadline<'static>,
    ) -> Self {
        Self {
            lost: Box::pin(async move {
                let lease = held.lease;
                let deadline = sent_at + lease;
                let lost = renew_until_lost(&mut held, lease, deadline, next, at_deadline).await;
                held.warn(lost);
                lost
            }),
        }
    }

    /// Ends when the lease is lost.
    pub(super) async fn until_lost(self) -> Lost {
        self.lost.await
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

    pub(crate) fn warn(&self, lost: Lost) {
        let Reservation { id, fence, .. } = &self.reservation;
        match lost {
            Lost::TakenOver => tracing::warn!(record = %id, %fence, "the lease was lost"),
            Lost::Expired => {
                tracing::warn!(record = %id, %fence, "the lease was not renewed in time");
            }
        }
    }
}

impl<S: Store> Renew for StoreLease<S> {
    async fn renew(&mut self) -> Result<Held, Error> {
        self.store.renew(&self.reservation, self.lease).await
    }
}

/// The end of the lease is counted here from the moment the last request that succeeded was *sent*:
/// the store started counting no earlier. What happens at that end is `at_deadline`'s.
pub(crate) async fn renew_until_lost(
    held: &mut impl Renew,
    lease: Duration,
    mut deadline: Instant,
    mut next: Instant,
    at_deadline: AtDeadline<'_>,
) -> Lost {
    let interval = lease / 3;
    let mut grace_ends = None;
    loop {
        tokio::time::sleep_until(next).await;
        let now = Instant::now();
        let left = deadline.saturating_duration_since(now);
        let patience = match (left, at_deadline) {
            (Duration::ZERO, AtDeadline::End(_)) => return Lost::Expired,
            (Duration::ZERO, AtDeadline::Ask | AtDeadline::AskOn) => {
                // Counted from here, not from the end of the lease: after a blocking body, or a
                // process that stood still, the store is asked as well. One patient request may
                // succeed where short ones are cut again and again.
                let grace = lease.min(LONGEST_GRACE);
                let ends = *grace_ends.get_or_insert(now + grace);
                match ends.saturating_duration_since(now) {
                    Duration::ZERO if matches!(at_deadline, AtDeadline::Ask) => {
                        return Lost::Expired;
                    }
                    Duration::ZERO => {
                        grace_ends = Some(now + grace);
                        grace
                    }
                    left => left,
                }
            }
            (left, _) => left.min(interval),
        };
        match tokio::time::timeout(patience, held.renew()).await {
            Ok(Ok(Held::Yes)) => {
                deadline = now + lease;
                next = now + interval;
                grace_ends = None;
                if let AtDeadline::End(term) = at_deadline
                    && !term.extend(deadline)
                {
                    return Lost::Expired;
                }
            }
            Ok(Ok(Held::No)) => return Lost::TakenOver,
            Ok(Err(_)) | Err(_) => {
                next = (Instant::now() + interval / 4).min(grace_ends.unwrap_or(deadline));
            }
        }
    }
}
