//! Locks: one holder of a name at a time, over several processes, and a number that refuses who is
//! late.
//!
//! | what | held by | use it for |
//! |---|---|---|
//! | [`LeaseLock`] | a lease in any leased [`Store`](crate::store::Store) | work outside a database |
//! | `advisory::lock_tx` | a Postgres transaction | work inside that transaction |
//! | `advisory::AdvisoryLock` | a Postgres session of its own | long work, where Postgres is the only server |
//!
//! # What holds
//! * **The store decides.** A lock is had by one atomic step of the store, never by a wake-up or by
//!   a turn in a line.
//! * **Fencing numbers grow** from holder to holder of a name, release or not.
//! * **A lock ends.** A holder that is killed, aborted, panicking or shut down keeps it for the rest
//!   of its lease at most; a transaction or a session takes its lock with it.
//! * A holder whose lease may be over is told so by its own clock, store or no store.
//!
//! # What does not
//! **Mutual exclusion by time alone.** A process that stands still past its lease goes on afterwards.
//! What it then writes has to be refused where it is written: by the fencing number, which
//! `FencedUpdate` checks in the very statement that writes. `advisory::lock_tx` needs none, since the
//! writes end with the transaction that holds it.
//!
//! Numbers are those of one lock in one store. Those of a
//! [`MemoryStore`](crate::store::memory::MemoryStore) begin again with the process: do not write them
//! into a database.

#[cfg(feature = "postgres")]
pub mod advisory;
mod error;
#[cfg(feature = "_sqlx")]
mod fenced;
mod guard;
mod keeper;
mod lane;
mod lease;
mod run;

pub use error::{LockError, RunError};
#[cfg(feature = "_sqlx")]
pub use fenced::{FenceError, FencedUpdate, Written};
use guard::GiveBack;
pub use guard::LockGuard;
pub use lease::{DEFAULT_LEASE, DEFAULT_WAIT, Holder, LeaseLock};

use crate::error::Error;
use crate::key::{Key, KeyBuilder};

/// What becomes of a lock whose guard is dropped without a release: by an early return, a panic, a
/// dropped future, an aborted task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDrop {
    /// It is given back in the background.
    #[default]
    Release,
    /// It is held until its lease ends: for work that goes on elsewhere after it was dropped midway.
    Hold,
}

/// The list of type names that no function has: what keeps locks apart from the records of a function
/// with the same scope.
const NO_TYPE: &[&str] = &[""];

/// The name as people read it in a store: control characters would not be taken by each.
///
/// # Errors
/// An empty name is one whose parts are missing: it would be everybody's lock.
fn readable(name: &str) -> Result<Key, Error> {
    let mut key = KeyBuilder::new("");
    key.part(name);
    key.finish()
}
