use std::time::Duration;

use sqlx::{PgTransaction, Postgres};

use super::{SCOPE, busy, id};
use crate::engine::Backoff;
use crate::error::Error;
use crate::lock::{LockError, readable};
use crate::store::sql::classify;

/// Takes the lock until the transaction ends, waiting for it at most so long.
///
/// It asks again, after 2 to 50 ms with jitter, instead of waiting inside the database: so a waiting
/// call that is dropped, or whose time is over, leaves the transaction as it was.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use idem_runtime::lock::advisory::lock_tx;
///
/// let mut tx = pool.begin().await?;
/// lock_tx(&mut tx, "report:2026-07", Duration::from_secs(5)).await?;
/// // …read, decide, write…
/// tx.commit().await?;
/// # Ok(()) }
/// ```
///
/// **Isolation.** From `REPEATABLE READ` on a transaction reads as of its first statement, and that
/// may be the very one that waits here: it would not see what the holder before has committed. Use
/// `READ COMMITTED`, or be ready for a serialization failure when you write.
///
/// A lock that was taken within a savepoint goes when that is rolled back. A transaction may take a
/// lock twice.
///
/// # Errors
/// [`LockError::Busy`]: the transaction is as before. [`LockError::Failed`] for the rest:
/// [`ErrorKind::RetryTransaction`](crate::ErrorKind::RetryTransaction) in it if the transaction is
/// aborted.
///
/// # Cancel safety
/// The lock may have been taken; it ends with the transaction, which is otherwise as before.
pub async fn lock_tx(
    tx: &mut PgTransaction<'_>,
    name: &str,
    wait: Duration,
) -> Result<(), LockError> {
    let (first, longest) = (Duration::from_millis(2), Duration::from_millis(50));
    let mut backoff = Backoff::new(Some(wait), first, longest);
    loop {
        match try_lock_tx(tx, name).await {
            Err(busy) if busy.is_busy() => match backoff.next() {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(busy),
            },
            answer => return answer,
        }
    }
}

/// Takes the lock until the transaction ends, if it is free now.
///
/// # Errors
/// As [`lock_tx`].
///
/// # Cancel safety
/// As [`lock_tx`].
pub async fn try_lock_tx(tx: &mut PgTransaction<'_>, name: &str) -> Result<(), LockError> {
    let id = id(name);
    let at = |error: Error| LockError::from(error.at(SCOPE, Some(name), false, id));
    readable(name).map_err(at)?;
    let locked: Result<bool, sqlx::Error> =
        sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)")
            .bind(id.lock_number())
            .fetch_one(&mut **tx)
            .await;
    match locked {
        Ok(true) => Ok(()),
        Ok(false) => Err(busy(name)),
        Err(error) => Err(at(classify::<Postgres>(error))),
    }
}
