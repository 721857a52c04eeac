use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::protocol::Owner;

static RUNNING: LazyLock<Mutex<HashSet<Owner>>> = LazyLock::new(Mutex::default);

/// Marks a reservation whose body runs in this process, until it is dropped.
///
/// A row without outcome that is visible to a transaction was either reserved by that very
/// transaction, or committed half-done where the database could not refuse it. The first owner is
/// registered here, the second is not.
#[derive(Debug)]
pub(crate) struct Running(Owner);

impl Running {
    pub(crate) fn register(owner: Owner) -> Self {
        RUNNING
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(owner);
        Self(owner)
    }

    pub(crate) fn owner(&self) -> Owner {
        self.0
    }

    pub(crate) fn contains(owner: Owner) -> bool {
        RUNNING
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&owner)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.0);
    }
}
