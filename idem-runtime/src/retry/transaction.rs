//! Runs a body in a transaction, commits, and begins again.

use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sqlx::{Pool, Transaction};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{RetryPolicy, Retryable};
use crate::engine::run_to_end;
use crate::machine::{Connection, Guarded};
use crate::store::sql::{Dialect, refuses_commit};

/// The last error, and after how many attempts it was the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GaveUp<E> {
    /// The error of the last attempt.
    pub error: E,
    /// How many attempts were made.
    pub attempts: u32,
    /// The commit was sent and its answer did not come, or does not tell: the transaction may have
    /// been committed. Repeat the call with the same key: it replays if the commit held.
    pub in_doubt: bool,
}

impl<E> GaveUp<E> {
    /// The error of the last attempt: `.map_err(GaveUp::into_error)?`.
    #[must_use]
    pub fn into_error(self) -> E {
        self.error
    }
}

impl<E: fmt::Display> fmt::Display for GaveUp<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let doubt = if self.in_doubt {
            ": the commit may have held; repeat the call with the same key"
        } else {
            ""
        };
        write!(f, "{}{doubt} (attempt {})", self.error, self.attempts)
    }
}

impl<E: std::error::Error + 'static> std::error::Error for GaveUp<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// The transaction of one attempt, lent to the body: it derefs to the transaction and goes back when
/// the body ends.
#[derive(Debug)]
pub struct Attempt<D: Dialect> {
    tx: OwnedMutexGuard<Transaction<'static, D>>,
}

impl<D: Dialect> Deref for Attempt<D> {
    type Target = Transaction<'static, D>;

    fn deref(&self) -> &Self::Target {
        &self.tx
    }
}

impl<D: Dialect> DerefMut for Attempt<D> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.tx
    }
}

impl<D: Guarded> Connection for Attempt<D> {
    type Db = D;

    fn connection(&mut self) -> &mut D::Connection {
        &mut self.tx
    }
}

/// Runs `body` in a transaction and commits; where the database gave the transaction up, rolls back
/// and runs all of it again in a fresh transaction, with growing pauses, within the policy's bounds.
///
/// Only errors that [call for it](Retryable) are retried: a deadlock, a serialization failure, a busy
/// database, a conflict of versions, an [`Error`](crate::Error) that asks for a new transaction; in
/// the body's own statements, in those of idempotent functions, and at the commit. An error of the
/// business, a row that is not there and a permanent refusal of the database are not. Nor is a commit
/// whose answer was lost ([`GaveUp::in_doubt`]): it may have held, and what is idempotent in the body
/// then replays when the caller repeats the call with the same key.
///
/// `body` must read what it decides by *inside*: what was read before the transaction is as stale in
/// the second attempt as in the first. Effects outside the database happen once per attempt. The
/// future is `Send` if the body's is. On SQLite the transaction begins with `BEGIN IMMEDIATE`.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # async fn example(pool: sqlx::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
/// use idem_runtime::retry::{RetryPolicy, retry_transaction};
///
/// retry_transaction(&pool, RetryPolicy::default(), |mut tx| async move {
///     sqlx::query("UPDATE account SET balance = balance - 100 WHERE id = 7")
///         .execute(&mut **tx)
///         .await
/// })
/// .await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// The error of the last attempt. A body that answers `Ok` after it has swallowed an error that
/// aborted (Postgres) or ended (MariaDB) the transaction is an error and not a commit; so is one
/// that keeps the [`Attempt`] beyond its end. Neither is run again: pass errors on.
///
/// # Cancel safety
/// The transaction is rolled back. Dropped while the commit runs, it may have been committed.
pub async fn retry_transaction<D, T, E, F, Fut>(
    pool: &Pool<D>,
    policy: RetryPolicy,
    mut body: F,
) -> Result<T, GaveUp<E>>
where
    D: Dialect,
    E: Retryable + From<sqlx::Error>,
    F: FnMut(Attempt<D>) -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let mut pauses = policy.begin();
    let mut attempts = 0;
    loop {
        attempts += 1;
        let Failed {
            error,
            again,
            in_doubt,
        } = match attempt(pool, &mut body).await {
            Ok(value) => return Ok(value),
            Err(failed) => failed,
        };
        let pause = if again && attempts < policy.attempts {
            pauses.next()
        } else {
            None
        };
        let Some(pause) = pause else {
            return Err(GaveUp {
                error,
                attempts,
                in_doubt,
            });
        };
        tokio::time::sleep(pause).await;
    }
}

/// Why an attempt did not commit.
struct Failed<E> {
    error: E,
    again: bool,
    in_doubt: bool,
}

impl<E: Retryable> Failed<E> {
    fn body(error: E) -> Self {
        let again = error.calls_for_retry();
        Self {
            error,
            again,
            in_doubt: false,
        }
    }
}

impl<E: From<sqlx::Error>> Failed<E> {
    /// A statement around the body. Asked before the error is converted: a user's type may lose the
    /// code.
    fn around(error: sqlx::Error) -> Self {
        Self {
            again: error.calls_for_retry(),
            error: error.into(),
            in_doubt: false,
        }
    }

    fn commit<D: Dialect>(error: sqlx::Error) -> Self {
        let refused = refuses_commit::<D>(&error);
        let mut failed = Self::around(error);
        failed.again &= refused;
        failed.in_doubt = !refused;
        failed
    }
}

async fn attempt<D, T, E, F, Fut>(pool: &Pool<D>, body: &mut F) -> Result<T, Failed<E>>
where
    D: Dialect,
    E: Retryable + From<sqlx::Error>,
    F: FnMut(Attempt<D>) -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let begin = pool.clone();
    let begun = run_to_end(async move { D::begin(&begin).await }).await;
    let lent = Arc::new(Mutex::new(begun.map_err(Failed::around)?));
    let tx = Arc::clone(&lent).lock_owned().await;
    let done = body(Attempt { tx }).await;
    let Ok(tx) = Arc::try_unwrap(lent) else {
        let kept = sqlx::Error::Protocol("the body kept its transaction beyond its end".to_owned());
        let kept = done.err().unwrap_or_else(|| kept.into());
        // Whoever keeps it may still write in it.
        return Err(Failed {
            error: kept,
            again: false,
            in_doubt: false,
        });
    };
    let mut tx = tx.into_inner();
    let failed = match done {
        Ok(value) => match is_alive(&mut tx).await {
            Ok(()) => {
                let done = tx.commit().await;
                return done.map(|()| value).map_err(Failed::commit::<D>);
            }
            Err(error) => Failed::around(error),
        },
        Err(error) => Failed::body(error),
    };
    // Awaited, so that its locks are gone before the next attempt; a connection that cannot roll
    // back is closed by the pool.
    let _ = tx.rollback().await;
    Err(failed)
}

/// Whether a commit would commit what the transaction has done.
async fn is_alive<D: Dialect>(tx: &mut Transaction<'static, D>) -> Result<(), sqlx::Error> {
    if D::is_alive(tx).await? {
        return Ok(());
    }
    let ended = "the transaction ended inside its body";
    Err(sqlx::Error::Protocol(ended.to_owned()))
}
