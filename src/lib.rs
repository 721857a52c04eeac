#![doc = include_str!("../README.md")]

pub use idem_runtime::engine::fence;
pub use idem_runtime::observe::{Answered, Observed, observe};
#[cfg(feature = "testing")]
pub use idem_runtime::testing;
pub use idem_runtime::{
    Effect, Error, ErrorKind, Retry, batch, bytes, canonical, clock, fingerprint, key, lock,
    machine, outcome, protocol, retention, status, store, token,
};
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub use idem_runtime::{
    retry::{self, Retryable, retry_transaction},
    steps, version,
};

pub use idem_macros::{KeyPart, StateMachine, idempotent};
#[doc(inline)]
pub use idem_runtime::key::KeyPart;
#[doc(inline)]
pub use idem_runtime::store::memory::MemoryStore;

#[doc(hidden)]
pub use idem_runtime::__private;

/// The pages whose code is compiled and run with the other examples.
#[cfg(all(doctest, feature = "full"))]
mod guide {
    #[doc = include_str!("../docs/guide/batch.md")]
    struct Batch;
    #[doc = include_str!("../docs/guarantees.md")]
    struct Guarantees;
    #[doc = include_str!("../docs/guide/lock.md")]
    struct Lock;
    #[doc = include_str!("../docs/guide/optimistic-lock.md")]
    struct OptimisticLock;
    #[doc = include_str!("../docs/guide/schema.md")]
    struct Schema;
    #[doc = include_str!("../docs/guide/state-machine.md")]
    struct StateMachine;
    #[doc = include_str!("../docs/guide/status.md")]
    struct Status;
    #[doc = include_str!("../docs/guide/steps.md")]
    struct Steps;
    #[doc = include_str!("../docs/guide/tokens.md")]
    struct Tokens;
    #[doc = include_str!("../docs/guide/which-protection.md")]
    struct WhichProtection;
}
