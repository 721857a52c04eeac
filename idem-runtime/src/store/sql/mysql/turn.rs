//! Whose turn it is to wait for a record in the server: one call of a process at a time.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::key::RecordId;

static WAITING: LazyLock<Mutex<HashSet<RecordId>>> = LazyLock::new(Mutex::default);

fn waiting() -> MutexGuard<'static, HashSet<RecordId>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The turn, which ends when it is dropped. Two databases that hold one record share it: then a call
/// only asks without waiting.
#[derive(Debug)]
#[must_use]
pub(super) struct Turn(RecordId);

impl Turn {
    /// `None`: another call of this process waits for the record.
    pub(super) fn take(id: RecordId) -> Option<Self> {
        let is_first = waiting().insert(id);
        is_first.then(|| Self(id))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        waiting().remove(&self.0);
    }
}
