use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::Replay;
use crate::error::{Error, ErrorKind};
use crate::operation::Call;
use crate::store::sql::{Asked, Fill, Row};
use crate::store::{Kept, Until};

/// What a transaction of the framework's own knows of the front before it, if there is one.
#[derive(Default)]
pub(super) struct Behind {
    front: Option<Arc<dyn Fill>>,
    is_new: bool,
}

impl Behind {
    pub(super) fn new(front: Option<Arc<dyn Fill>>, asked: &Asked) -> Self {
        Self {
            front,
            is_new: matches!(asked, Asked::New),
        }
    }

    /// Whether looking the key up before reserving it is in vain.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Copies a record that was read, and that this transaction did not write.
    pub(super) async fn read(&self, call: &Call, row: &Row) {
        if let (Some(front), Some(outcome)) = (&self.front, &row.outcome) {
            let kept = Kept::new(row.fingerprint, outcome.clone(), row.recorded_at);
            front.fill(call.id(), &kept, row.until).await;
        }
    }

    /// Copies an outcome whose recording was asked for at `asked_at` and is committed.
    pub(super) async fn committed(&self, call: &Call, outcome: &Bytes, asked_at: Instant) {
        if let Some(front) = &self.front {
            let kept = Kept::new(call.fingerprint(), outcome.clone(), None);
            let until = Until::recorded(asked_at, call.retention());
            front.fill(call.id(), &kept, until).await;
        }
    }
}

impl fmt::Debug for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Behind")
            .field("front", &self.front.is_some())
            .field("is_new", &self.is_new)
            .finish()
    }
}

/// The answer of a front, if it is one to this call.
pub(super) fn from_front(call: Call, kept: Kept) -> Result<Replay, Error> {
    if !kept.fingerprint.matches(call.fingerprint()) {
        return Err(call.error(ErrorKind::FingerprintMismatch));
    }
    Ok(Replay {
        call,
        outcome: kept.outcome,
        recorded_at: kept.recorded_at,
    })
}
