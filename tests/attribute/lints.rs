//! No lint fires on generated code. The module is compiled by clippy too.
#![deny(
    warnings,
    missing_docs,
    unused,
    unreachable_code,
    unused_qualifications,
    unsafe_op_in_unsafe_fn,
    single_use_lifetimes,
    let_underscore_drop,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::implicit_return,
    clippy::shadow_same,
    clippy::shadow_reuse,
    clippy::shadow_unrelated,
    clippy::blocks_in_conditions,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::let_underscore_untyped,
    clippy::let_underscore_must_use,
    clippy::absolute_paths,
    clippy::question_mark_used,
    clippy::pattern_type_mismatch,
    clippy::ref_patterns,
    clippy::clone_on_ref_ptr,
    clippy::wildcard_enum_match_arm,
    clippy::arithmetic_side_effects
)]
// Contradicts `implicit_return`.
#![allow(clippy::needless_return)]

use std::time::Duration;

use crate::support::{Failure, MemoryStore, Request, idempotent};

/// A service.
pub struct Service {
    store: MemoryStore,
    n: u8,
}

impl Service {
    /// With `self` as it is.
    ///
    /// # Errors
    /// None.
    #[idempotent(key = "{id}:{req.order_no}", ttl = "1d", store = self.store, companion = shared_call)]
    pub async fn shared(&self, id: u8, req: Request) -> Result<i64, Failure> {
        return Ok(i64::from(id.wrapping_add(self.n)).wrapping_add(req.cents));
    }

    /// With a receiver that cannot be bound again.
    ///
    /// # Errors
    /// None.
    #[idempotent(key = "{self.n}:{id}", ttl = "1d", store = self.store, companion = exclusive_call)]
    pub async fn exclusive(&mut self, mut id: u8, req: Request) -> Result<i64, Failure> {
        id = id.wrapping_add(1);
        self.n = id;
        return Ok(req.cents);
    }
}

/// Ends in a loop.
///
/// # Errors
/// Never.
#[idempotent(key(id), ttl = "1d", store = store, fingerprint(id), wait = "1s", record_err = all, companion = endless_call)]
pub async fn endless(store: &MemoryStore, id: u8) -> Result<u8, Recorded> {
    loop {
        if id > 0 {
            return Ok(id);
        }
    }
}

/// Ends in nothing.
///
/// # Errors
/// Never.
#[idempotent(key = "{id}", ttl = Duration::from_secs(1), store = store.clone())]
pub async fn unfinished(store: &mut MemoryStore, id: u8) -> Result<u8, Failure> {
    unimplemented!()
}

/// Items first.
///
/// # Errors
/// None.
#[idempotent(key = "{id}", ttl = "1d", store = store)]
pub async fn items(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    use std::convert::identity;
    const ONE: u8 = 1;
    return Ok(identity(id).wrapping_add(ONE));
}

/// One expression.
///
/// # Errors
/// None.
#[allow(clippy::implicit_return)]
#[idempotent(key = "{id}", ttl = "1d", store = store)]
pub async fn expression(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    Ok(id)
}

/// A recorded error.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct Recorded;

impl From<idem::Error> for Recorded {
    fn from(_: idem::Error) -> Self {
        return Self;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{MemoryStore, Request, Service, endless, expression, items, unfinished};

    #[tokio::test]
    async fn mac_12_functions_that_no_lint_objects_to_run() {
        let store = MemoryStore::new();
        let mut service = Service {
            store: store.clone(),
            n: 1,
        };
        let req = || return Request::new("m", "1", 1);
        assert_eq!(service.shared(1, req()).await.unwrap(), 3);
        assert_eq!(service.exclusive(1, req()).await.unwrap(), 1);
        assert_eq!(endless(&store, 1).await.unwrap(), 1);
        assert_eq!(items(&store, 1).await.unwrap(), 2);
        assert_eq!(expression(&store, 1).await.unwrap(), 1);
        drop(unfinished(&mut store.clone(), 1));
    }
}

#[cfg(feature = "sqlite")]
/// With a transaction.
#[allow(dead_code)]
pub mod sql {
    use sqlx::{Sqlite, SqlitePool, Transaction};

    use crate::support::{Failure, Request, idempotent};

    /// The caller's.
    ///
    /// # Errors
    /// None.
    #[idempotent(key = "{req.order_no}", ttl = "1d", store = tx)]
    pub async fn callers(tx: &mut Transaction<'_, Sqlite>, req: Request) -> Result<i64, Failure> {
        let cents = req.cents;
        let _: &mut Transaction<'_, Sqlite> = tx;
        return Ok(cents);
    }

    /// The caller's, not touched by the body.
    ///
    /// # Errors
    /// None.
    #[idempotent(key = "{id}", ttl = "1d", store = tx)]
    pub async fn untouched(tx: &mut Transaction<'_, Sqlite>, id: i64) -> Result<i64, Failure> {
        return Ok(id);
    }

    /// The framework's.
    ///
    /// # Errors
    /// None.
    #[idempotent(key = "{req.order_no}", ttl = "1d", store = pool, tx = tx, retry = 3, companion = own_call)]
    pub async fn own(pool: &SqlitePool, mut req: Request, name: String) -> Result<i64, Failure> {
        req.cents = req.cents.wrapping_add(1);
        drop(name);
        let _: &mut Transaction<'_, Sqlite> = tx;
        return Ok(req.cents);
    }
}
