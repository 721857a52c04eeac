//! Runs the body of a call, and ends it when its lease is lost.

use std::future::Future;
use std::pin::pin;

use super::call_path::{self, Holds};
use super::renewal::{Lost, Renewal};
use crate::key::RecordId;
use crate::operation::OnLostLease;
use crate::protocol::Fence;

/// Runs the body of one call.
#[derive(Debug)]
pub struct Driver {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// A transaction of the caller's guards the reservation; re-entrance by another one is seen on
    /// the call path.
    #[cfg(feature = "_sqlx")]
    InTransaction(RecordId),
    /// The framework's own transaction guards it; re-entrance is seen on the call path.
    #[cfg(feature = "_sqlx")]
    OnPath(super::coalesce::Lane),
    /// A lease guards it and is renewed while the body runs.
    Leased(RecordId, Fence, Renewal, OnLostLease),
}

/// How a body ended.
#[derive(Debug)]
#[must_use]
pub enum Driven<R> {
    /// With a result.
    Finished(R),
    /// It did not run: the backstop gave this.
    Known(R),
    /// It was dropped, because its lease was lost.
    LeaseLost(Lost),
}

impl Driver {
    #[cfg(feature = "_sqlx")]
    pub(crate) fn in_transaction(id: RecordId) -> Self {
        Self {
            kind: Kind::InTransaction(id),
        }
    }

    #[cfg(feature = "_sqlx")]
    pub(crate) fn on_path(lane: super::coalesce::Lane) -> Self {
        Self {
            kind: Kind::OnPath(lane),
        }
    }

    pub(crate) fn leased(
        id: RecordId,
        fence: Fence,
        renewal: Renewal,
        on_lost_lease: OnLostLease,
    ) -> Self {
        Self {
            kind: Kind::Leased(id, fence, renewal, on_lost_lease),
        }
    }

    /// Runs `body`.
    ///
    /// # Cancel safety
    /// Dropping it drops the body. A transaction is to be rolled back; a reservation with a lease does
    /// what its operation says ([`OnCancel`](crate::operation::OnCancel)), and so it does after a
    /// panic of the body.
    pub async fn drive<F: Future>(self, body: F) -> Driven<F::Output> {
        match self.kind {
            #[cfg(feature = "_sqlx")]
            Kind::InTransaction(id) => {
                Driven::Finished(call_path::within(Holds::InTransaction(id), body).await)
            }
            #[cfg(feature = "_sqlx")]
            Kind::OnPath(lane) => {
                Driven::Finished(call_path::within(Holds::Lane(lane), body).await)
            }
            Kind::Leased(id, fence, renewal, on_lost_lease) => {
                let mut body = pin!(call_path::within(Holds::Leased(id, fence), body));
                let lost = tokio::select! {
                    biased;
                    result = &mut body => return Driven::Finished(result),
                    lost = renewal.until_lost() => lost,
                };
                match on_lost_lease {
                    OnLostLease::Cancel => Driven::LeaseLost(lost),
                    OnLostLease::Continue => Driven::Finished(body.await),
                }
            }
        }
    }
}
