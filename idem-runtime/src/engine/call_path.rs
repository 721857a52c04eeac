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
    holds: Holds,
    outer: Option<Arc<Frame>>,
}

/// What the body of one call holds.
#[derive(Debug)]
pub(crate) enum Holds {
    /// A record in a transaction of the framework's own.
    #[cfg(feature = "_sqlx")]
    Lane(super::coalesce::Lane),
    /// A record in a transaction of a caller's.
    #[cfg(feature = "_sqlx")]
    InTransaction(RecordId),
    /// A record by a lease.
    Leased(RecordId, Fence),
    /// Nothing: one of more items in one transaction than locks are to be spent on.
    #[cfg(feature = "_sqlx")]
    Unlocked,
}

impl Holds {
    fn fence(&self) -> Option<Fence> {
        match self {
            Self::Leased(_, fence) => Some(*fence),
            #[cfg(feature = "_sqlx")]
            Self::Lane(_) | Self::InTransaction(_) | Self::Unlocked => None,
        }
    }
}

/// Runs a body with its record on the call path.
pub(crate) async fn within<F: Future>(holds: Holds, body: F) -> F::Output {
    let outer = PATH.try_with(Arc::clone).ok();
    PATH.scope(Arc::new(Frame { holds, outer }), body).await
}

/// Whether a body on this call path already holds the record by a lease: waiting for it would never
/// end.
pub(crate) fn holds(id: RecordId) -> bool {
    any(|holds| matches!(holds, Holds::Leased(held, _) if *held == id))
}

/// The same for a record in this table of this pool; in another database it is another one.
#[cfg(feature = "_sqlx")]
pub(crate) fn holds_lane(lane: &super::coalesce::Lane) -> bool {
    any(|holds| matches!(holds, Holds::Lane(held) if held.is_of_the_record_of(lane)))
}

/// The same for a record in a transaction of a caller's. Of the database nothing is known here, so
/// this is asked only where the database has said that somebody is at the record.
#[cfg(feature = "_sqlx")]
pub(crate) fn holds_in_transaction(id: RecordId) -> bool {
    any(|holds| matches!(holds, Holds::InTransaction(held) if *held == id))
}

/// Whether a body on this call path holds the record in a transaction of whosever. Asked only where the
/// database has shown its row unfinished.
#[cfg(feature = "_sqlx")]
pub(crate) fn holds_unfinished(id: RecordId) -> bool {
    any(|holds| match holds {
        Holds::Lane(lane) => lane.id == id,
        Holds::InTransaction(held) => *held == id,
        Holds::Leased(..) | Holds::Unlocked => false,
    })
}

/// The records that bodies on this call path hold in transactions of the framework's own.
#[cfg(feature = "_sqlx")]
pub(crate) fn lanes() -> Vec<super::coalesce::Lane> {
    let mut lanes = Vec::new();
    let mut frame = PATH.try_with(Arc::clone).ok();
    while let Some(at) = frame {
        if let Holds::Lane(lane) = &at.holds {
            lanes.push(lane.clone());
        }
        frame = at.outer.clone();
    }
    lanes
}

/// Whether the next call is an item that is to take no lock of its own.
#[cfg(feature = "_sqlx")]
pub(crate) fn is_unlocked() -> bool {
    PATH.try_with(|frame| matches!(frame.holds, Holds::Unlocked))
        .unwrap_or(false)
}

fn any(matches: impl Fn(&Holds) -> bool) -> bool {
    let mut frame = PATH.try_with(Arc::clone).ok();
    while let Some(at) = frame {
        if matches(&at.holds) {
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
/// `None` outside a leased call: in a transaction the transaction itself is the fence. A call in a
/// transaction within a leased one hides nothing.
#[must_use]
pub fn fence() -> Option<Fence> {
    let mut frame = PATH.try_with(Arc::clone).ok();
    while let Some(at) = frame {
        if let Some(fence) = at.holds.fence() {
            return Some(fence);
        }
        frame = at.outer.clone();
    }
    None
}
