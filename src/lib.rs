#![doc = include_str!("../README.md")]

pub use idem_runtime::engine::fence;
pub use idem_runtime::observe::{Answered, Observed, observe};
#[cfg(feature = "testing")]
pub use idem_runtime::testing;
pub use idem_runtime::{
    Effect, Error, ErrorKind, Retry, bytes, canonical, clock, fingerprint, key, machine, outcome,
    protocol, retention, store,
};

pub use idem_macros::{KeyPart, StateMachine, idempotent};
#[doc(inline)]
pub use idem_runtime::key::KeyPart;
#[doc(inline)]
pub use idem_runtime::store::memory::MemoryStore;

#[doc(hidden)]
pub use idem_runtime::__private;

#[cfg(all(doctest, feature = "full"))]
#[doc = include_str!("../docs/guide/state-machine.md")]
mod guide {}
