//! The runtime of `idem-rs`.
//!
//! Nothing here is named by service code directly: the facade crate `idem` re-exports what is
//! public, and the `#[idempotent]` attribute calls [`__private`].
//!
//! | module | idea |
//! |---|---|
//! | [`key`] | the idempotency key: typed parts, escaping, the record id |
//! | [`fingerprint`] | the digest of the payload |
//! | [`outcome`] | what the first run returned, as it is stored |
//! | [`protocol`] | the states of a record and who decides them; no I/O |
//! | [`engine`] | drives the protocol: caller's transaction, own transaction, leased store |
//! | [`store`] | the stores: atomic steps and nothing else |
//! | [`batch`] | many calls as one, each item under its own key |
//! | [`status`] | how a call stands, asked by its key without running anything |
//! | [`machine`] | state machines: declared transitions, made as guarded statements |
//! | [`lock`] | locks, and the fencing number that refuses who is late |
//! | [`token`] | one-time tokens |
//! | `retry` | the whole transaction again, within bounds (with a database feature) |
//! | `steps` | sagas: recorded steps and what undoes them (with a database feature) |
//! | `version` | the optimistic lock (with a database feature) |
//! | `testing` | what tests of functions and of stores need (feature `testing`) |
//! | [`error`] | what happened, what it means for the effect, what to do |

#[doc(hidden)]
pub mod __private;
mod answer;
pub mod batch;
pub mod canonical;
pub mod clock;
#[cfg(feature = "_sqlx")]
mod duplicates;
pub mod engine;
pub mod error;
pub mod fingerprint;
mod identity;
pub mod key;
pub mod lock;
pub mod machine;
pub mod observe;
pub mod operation;
pub mod outcome;
#[doc(hidden)]
pub mod probe;
pub mod protocol;
pub mod retention;
#[cfg(feature = "_sqlx")]
pub mod retry;
pub mod status;
#[cfg(feature = "_sqlx")]
pub mod steps;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
pub mod token;
#[cfg(feature = "_sqlx")]
pub mod version;

/// Outcomes are handed to stores as [`bytes::Bytes`].
pub use bytes;
pub use error::{Effect, Error, ErrorKind, Retry};
pub use observe::observe;
