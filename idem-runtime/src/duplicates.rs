//! How common duplicates are.

use std::sync::atomic::{AtomicU32, Ordering};

/// The share of recent calls of one operation that were duplicates, as an exponentially weighted
/// mean in 1/65536.
///
/// Reading first pays only when duplicates are common; this measures it instead of asking the user.
/// Updates may be lost under contention, which only blurs the mean.
#[derive(Debug)]
pub(crate) struct DuplicateRate(AtomicU32);

impl DuplicateRate {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    pub(crate) fn record(&self, duplicate: bool) {
        let old = self.0.load(Ordering::Relaxed);
        let sample = if duplicate { 65_536 } else { 0 };
        self.0
            .store(old - old / 16 + sample / 16, Ordering::Relaxed);
    }

    pub(crate) fn is_high(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 65_536 / 3
    }
}
