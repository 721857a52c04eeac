//! A front before a store: repeats of completed calls are answered from memory or from Redis, and the
//! store stays the truth.
//!
//! The front holds **completed outcomes only**. Who may run is decided by the store behind it, and by
//! its unique index, always. A front that is empty, down, slow or wrong about being new makes calls
//! slower and nothing else.
//!
//! # When it is filled
//! * by a repeat that has read a *committed* record. A record that was read in the very transaction
//!   that wrote it is none: that transaction may still be rolled back;
//! * after the commit, where the transaction is the framework's own ([`Tier::pool`]);
//! * after the commit, by [`AfterCommit`], where the transaction is the caller's ([`Tier::over`]): it
//!   reads the records back, and puts only those that are there.
//!
//! So a transaction that is rolled back leaves no mark in it.
//!
//! # For how long it answers
//! Never longer than the record is kept: an entry has the time that was left to its record, counted
//! from before the record was read, and at most the front's own `max_age`.
//!
//! # Forgetting
//! [`Tier::forget`] and `forget` of a [`Tiered`] store remove the record first and then the copy, and
//! keep copies out for [`BARRIER`] afterwards: a repeat that had just read the record cannot put it
//! back, and one that read it [`LATEST`] ago or earlier cannot put it anywhere. A front in the memory of *another* process is not reached: it may replay a forgotten
//! outcome until its `max_age` is over.
//!
//! # One front, one set of records
//! A record's id is made of namespace, operation and key. Two databases with the same operations
//! behind one front need a namespace each, or one is answered from the other's records.
//!
//! ```
//! use idem_runtime::store::memory::MemoryStore;
//! use idem_runtime::store::tiered::{MemoryFront, Tiered};
//!
//! let store = Tiered::new(MemoryFront::new(64 << 20), MemoryStore::new());
//! # let _ = store;
//! ```
//!
//! In front of a transaction or a pool:
//!
//! ```text
//! struct Orders { front: Tier<MemoryFront>, pool: PgPool }
//!
//! #[idempotent(key = "order:{no}", ttl = "7d", store = "self.front.pool(&self.pool)", tx = "tx")]
//! async fn create(&self, no: u64) -> Result<Order, Failure> { … }
//!
//! #[idempotent(key = "order:{no}", ttl = "7d", store = "self.front.over(tx)")]
//! async fn create_in(&self, tx: &mut PgTransaction<'_>, no: u64) -> Result<Order, Failure> { … }
//! ```

mod clock;
mod front;
mod guard;
mod leased;
mod memory;
#[cfg(feature = "_sqlx")]
mod sql;
mod stack;
mod tier;

use std::time::Duration;

pub use front::Front;
pub use guard::Limits;
pub use leased::Tiered;
pub use memory::{DEFAULT_MAX_AGE, MemoryFront};
#[cfg(feature = "_sqlx")]
pub use sql::{AfterCommit, OverPool, OverTx};
pub use stack::Stack;
pub use tier::Tier;

/// For how long a front takes no copy of a record that was removed. A copy that was read
/// [`LATEST`] ago or earlier is refused at any time, so that none of a forgotten record comes later.
pub const BARRIER: Duration = Duration::from_secs(10);

/// How long after its record was read a copy is still taken: half of the [`BARRIER`], so that a
/// request may be under way to the front for the other half.
pub const LATEST: Duration = Duration::from_secs(5);

/// Whether a copy was read too long ago: its record may have been forgotten since.
pub(crate) fn is_late(until: crate::store::Until) -> bool {
    until.asked_ago().is_some_and(|ago| ago >= LATEST)
}
