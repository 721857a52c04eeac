//! Postgres advisory locks: held by a transaction, or by a session.
//!
//! * [`lock_tx`] and [`try_lock_tx`] take the lock in a transaction and end with it, on every way
//!   out. **No fencing number is needed**: what the transaction writes is committed while it holds
//!   the lock, or not at all. A holder whose session is gone has no transaction that could still
//!   commit.
//! * [`AdvisoryLock`] holds it in a session of its own, for work that is longer than a transaction
//!   should be, or elsewhere. That session may die unnoticed, so there is a [`fence`] for what is
//!   written.
//!
//! The number of a lock is [`lock_id`] of its name, the same in every build. Both forms exclude each
//! other, and every other program that takes the same number in the same database.
//!
//! [`fence`]: super::LockGuard::fence

mod connection;
mod session;
mod tx;

pub use session::{AdvisoryLock, DEFAULT_SEQUENCE, DEFAULT_SILENCE};
pub use tx::{lock_tx, try_lock_tx};

use super::{LockError, NO_TYPE};
use crate::key::RecordId;

/// Not the scope of [`LeaseLock`](super::LeaseLock): a store in Postgres takes the numbers of its
/// records while it reserves them.
const SCOPE: &str = "idem.lock.advisory";

/// The number of the lock of this name: the first 8 bytes, in network order, of the
/// [`RecordId`] of the name in the scope `idem.lock.advisory` with one empty type name.
///
/// Of a million names two have the same number with a chance of one in forty million; they would
/// then exclude each other, and nothing worse. The algorithm never changes between releases.
///
/// ```
/// use idem_runtime::lock::advisory::lock_id;
///
/// assert_eq!(lock_id("report:2026-07"), -3_521_992_152_134_842_505);
/// ```
#[must_use]
pub fn lock_id(name: &str) -> i64 {
    id(name).lock_number()
}

fn id(name: &str) -> RecordId {
    RecordId::new("", SCOPE, NO_TYPE, name)
}

fn busy(name: &str) -> LockError {
    LockError::Busy {
        name: name.to_owned(),
        free_in: None,
    }
}
