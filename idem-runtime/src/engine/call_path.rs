//! Which records the bodies on this call path hold.

use std::future::Future;
use std::sync::Arc;

use crate::key::RecordId;
use crate::protocol::Fence;

tokio::task_local! {
    static PATH: Arc<Frame>;
}

#[derive(Debug)]
struct Frame {
    id: RecordId,
    fence: Option<Fence>,
    outer: Option<Arc<Frame>>,
}

/// Runs a body with its record on the call path.
pub(crate) async fn within<F: Future>(id: RecordId, fence: Option<Fence>, body: F) -> F::Output {
    let outer = PATH.try_with(Arc::clone).ok();
    // A call in a transaction has no number and hides none.
    let fence = fence.or_else(|| outer.as_ref().and_then(|outer| outer.fence));
    PATH.scope(Arc::new(Frame { id, fence, outer }), body).await
}

/// Whether a body on this call path already holds the record: waiting for it would never end.
pub(crate) fn holds(id: RecordId) -> bool {
    let mut frame = PATH.try_with(Arc::clone).ok();
    while let Some(at) = frame {
        if at.id == id {
            return true;
        }
        frame = at.outer.clone();
    }
    false
}

/// The fencing number of the innermost leased call whose body this is.
///
/// Write it beside what the body changes, and let the resource refuse a lower one: a lease alone
/// cannot keep a stopped process from going on after its lease has ended.
///
/// `None` outside a leased call: in a transaction the transaction itself is the fence.
#[must_use]
pub fn fence() -> Option<Fence> {
    PATH.try_with(|frame| frame.fence).ok().flatten()
}
