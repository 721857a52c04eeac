//! The laws of every store, through fronts.

use std::time::Duration;

use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::tiered::{MemoryFront, Stack, Tier, Tiered};
use idem_runtime::testing::conformance::{Harness, Time};

use crate::redis::redis_front;

const LEASE: Duration = Duration::from_millis(500);

mod memory_before_memory {
    use super::*;

    idem_runtime::store_conformance!({
        let store = Tiered::new(MemoryFront::new(64 << 20), MemoryStore::new());
        Harness::new(store, Time::Real(LEASE)).announces_changes()
    });
}

mod two_fronts_before_memory {
    use super::*;

    idem_runtime::store_conformance!({
        let stack = Stack::new(MemoryFront::new(64 << 20), redis_front().await);
        let store = Tiered::new(Tier::new(stack), MemoryStore::new());
        Harness::new(store, Time::Real(LEASE)).announces_changes()
    });
}
