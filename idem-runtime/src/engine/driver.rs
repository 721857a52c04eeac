use std::future::Future;

use super::call_path;
use super::leased::Renewal;
use crate::key::RecordId;
use crate::protocol::Fence;

/// Runs the body of one call.
#[derive(Debug)]
pub struct Driver {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// A transaction guards the reservation; re-entrance by another one is seen on the call path.
    #[cfg_attr(not(feature = "_sqlx"), allow(dead_code))]
    OnPath(RecordId),
    /// A lease guards it and is renewed while the body runs.
    Leased(RecordId, Fence, Renewal),
}

/// How a body ended.
#[derive(Debug)]
#[must_use]
pub enum Driven<R> {
    /// With a result.
    Finished(R),
    /// It was dropped, because its lease was lost.
    LeaseLost,
}

impl Driver {
    #[cfg_attr(not(feature = "_sqlx"), allow(dead_code))]
    pub(crate) fn on_path(id: RecordId) -> Self {
        Self {
            kind: Kind::OnPath(id),
        }
    }

    pub(crate) fn leased(id: RecordId, fence: Fence, renewal: Renewal) -> Self {
        Self {
            kind: Kind::Leased(id, fence, renewal),
        }
    }

    pub(crate) fn is_leased(&self) -> bool {
        matches!(self.kind, Kind::Leased(..))
    }

    /// Runs `body`.
    ///
    /// # Cancel safety
    /// Dropping it drops the body; what that means for the reservation is the store's matter.
    pub async fn drive<F: Future>(self, body: F) -> Driven<F::Output> {
        match self.kind {
            Kind::OnPath(id) => Driven::Finished(call_path::within(id, None, body).await),
            Kind::Leased(id, fence, renewal) => {
                let body = call_path::within(id, Some(fence), body);
                tokio::select! {
                    biased;
                    result = body => Driven::Finished(result),
                    () = renewal.until_lost() => Driven::LeaseLost,
                }
            }
        }
    }
}
