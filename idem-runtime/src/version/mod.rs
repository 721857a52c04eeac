//! Optimistic locking: an update that names the version it was made from, and cannot miss silently.
//!
//! A [`VersionedUpdate`] changes one row if it still has the version that was read, and raises the
//! version in the same statement. The number of rows is always looked at: what was not done is an
//! error, and a stale version ([`VersionError::Conflict`]) is told from a row that is gone
//! ([`VersionError::NotFound`]). Since the version changes in every update, it makes no difference
//! whether a MySQL connection counts the rows it found or the rows it changed.
//!
//! What lost the race is done again from the start, reading included: [`retry_transaction`]
//! runs the *whole* transaction again, within bounds.
//!
//! [`retry_transaction`]: crate::retry::retry_transaction

mod batch;
mod error;
mod texts;
mod update;
mod values;

pub use batch::BatchError;
pub use error::VersionError;
pub use update::{Updated, VersionedUpdate};
pub use values::Values;

pub use crate::store::sql::Guarded as VersionDialect;
