//! How a worker tells the sagas it runs to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a run is to let its saga go before the next attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(super) fn ask_for(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_asked_for(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
