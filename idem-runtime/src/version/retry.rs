use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use sqlx::{Pool, Transaction};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::dialect::calls_for_retry;
use super::{BatchError, VersionDialect, VersionError};
use crate::engine::{Backoff, run_to_end};
use crate::error::{Error, Retry};

/// How often, and for how long, a transaction is run again.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RetryPolicy {
    attempts: u32,
    budget: Duration,
    first_pause: Duration,
    longest_pause: Duration,
}

impl Default for RetryPolicy {
    /// At most ten attempts, begun within five seconds; pauses of 2 to 200 ms with jitter.
    fn default() -> Self {
        Self {
            attempts: 10,
            budget: Duration::from_secs(5),
            first_pause: Duration::from_millis(2),
            longest_pause: Duration::from_millis(200),
        }
    }
}

impl RetryPolicy {
    /// At most so many attempts, the first one included; at least one is made.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Begins no attempt later than this after the first one. An attempt that runs is not ended.
    #[must_use]
    pub fn budget(mut self, budget: Duration) -> Self {
        self.budget = budget;
        self
    }

    /// The pauses grow from `first` to `longest`; each is shortened by up to half at random.
    #[must_use]
    pub fn pauses(mut self, first: Duration, longest: Duration) -> Self {
        self.first_pause = first;
        self.longest_pause = longest;
        self
    }
}

/// An error that knows whether running the whole transaction again may help.
///
/// For your own error type hand the question on:
///
/// ```
/// # #[cfg(feature = "_sqlx")] mod example {
/// use idem_runtime::version::{Retryable, VersionError};
///
/// enum TransferError {
///     Version(VersionError),
///     Database(sqlx::Error),
///     TooLittle,
/// }
///
/// impl Retryable for TransferError {
///     fn calls_for_retry(&self) -> bool {
///         match self {
///             Self::Version(error) => error.calls_for_retry(),
///             Self::Database(error) => error.calls_for_retry(),
///             Self::TooLittle => false,
///         }
///     }
/// }
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not tell which of its errors call for the transaction again",
    label = "not `Retryable`",
    note = "implement `Retryable` and hand the question on to the `VersionError` and the `sqlx::Error` inside"
)]
pub trait Retryable {
    /// Whether nothing remains of the transaction and it may succeed when it is run again.
    fn calls_for_retry(&self) -> bool;
}

/// Serialization failure, deadlock, changed record, lock wait, and SQLite's busy in all its forms.
impl Retryable for sqlx::Error {
    fn calls_for_retry(&self) -> bool {
        calls_for_retry(self)
    }
}

impl Retryable for VersionError {
    fn calls_for_retry(&self) -> bool {
        VersionError::calls_for_retry(self)
    }
}

impl Retryable for BatchError {
    fn calls_for_retry(&self) -> bool {
        self.error.calls_for_retry()
    }
}

impl Retryable for Error {
    fn calls_for_retry(&self) -> bool {
        self.retry() == Retry::NewTransaction
    }
}

/// The last error, and after how many attempts it was the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GaveUp<E> {
    /// The error of the last attempt.
    pub error: E,
    /// How many attempts were made.
    pub attempts: u32,
}

impl<E: fmt::Display> fmt::Display for GaveUp<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (attempt {})", self.error, self.attempts)
    }
}

impl<E: std::error::Error + 'static> std::error::Error for GaveUp<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// The transaction of one attempt, lent to the body: it derefs to the transaction and goes back when
/// the body is over.
#[derive(Debug)]
pub struct Attempt<D: VersionDialect> {
    tx: OwnedMutexGuard<Transaction<'static, D>>,
}

impl<D: VersionDialect> Deref for Attempt<D> {
    type Target = Transaction<'static, D>;

    fn deref(&self) -> &Self::Target {
        &self.tx
    }
}

impl<D: VersionDialect> DerefMut for Attempt<D> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.tx
    }
}

/// Runs `body` in a transaction and commits; when it lost a race, rolls back and runs all of it
/// again in a fresh transaction, with growing pauses, within the policy's bounds.
///
/// Only errors that [call for it](Retryable) are retried: a conflict of versions, a deadlock, a
/// serialization failure. A row that is not there, any error of the business, and a commit whose
/// answer was lost are not. `body` must read what it decides by *inside*: what was read before the
/// transaction is as stale in the second attempt as in the first. Effects outside the database
/// happen once per attempt.
///
/// The future is `Send` if the body's is. On SQLite the transaction begins with `BEGIN IMMEDIATE`.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # async fn example(pool: sqlx::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
/// use idem_runtime::version::{RetryPolicy, VersionError, VersionedUpdate, retry_transaction};
/// use sqlx::Sqlite;
///
/// let balance = &VersionedUpdate::<Sqlite, _>::new("account", ["balance"])?;
/// retry_transaction(&pool, RetryPolicy::default(), |mut tx| async move {
///     let (cents, version): (i64, i64) =
///         sqlx::query_as("SELECT balance, version FROM account WHERE id = 7")
///             .fetch_one(&mut **tx)
///             .await?;
///     balance.apply(&mut tx, 7, version, (cents - 100,)).await
/// })
/// .await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// The error of the last attempt. A body that answers `Ok` after it has swallowed an error that
/// aborted (Postgres) or ended (MariaDB) the transaction is an error and not a commit; so is one
/// that keeps the [`Attempt`] beyond its end.
///
/// # Cancel safety
/// The transaction is rolled back. Dropped while the commit runs, it may have been committed.
pub async fn retry_transaction<D, T, E, F, Fut>(
    pool: &Pool<D>,
    policy: RetryPolicy,
    mut body: F,
) -> Result<T, GaveUp<E>>
where
    D: VersionDialect,
    E: Retryable + From<sqlx::Error>,
    F: FnMut(Attempt<D>) -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let mut pauses = Backoff::new(
        Some(policy.budget),
        policy.first_pause,
        policy.longest_pause,
    );
    let mut attempts = 0;
    loop {
        attempts += 1;
        let error = match attempt(pool, &mut body).await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        if !error.calls_for_retry() || attempts >= policy.attempts {
            return Err(GaveUp { error, attempts });
        }
        match pauses.next() {
            Some(pause) => tokio::time::sleep(pause).await,
            None => return Err(GaveUp { error, attempts }),
        }
    }
}

async fn attempt<D, T, E, F, Fut>(pool: &Pool<D>, body: &mut F) -> Result<T, E>
where
    D: VersionDialect,
    E: From<sqlx::Error>,
    F: FnMut(Attempt<D>) -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let begin = pool.clone();
    let tx = run_to_end(async move { D::begin(&begin).await }).await?;
    let lent = Arc::new(Mutex::new(tx));
    let tx = Arc::clone(&lent).lock_owned().await;
    let mut done = body(Attempt { tx }).await;
    let Ok(tx) = Arc::try_unwrap(lent) else {
        let kept = "the body kept its transaction beyond its end";
        return Err(done.err().unwrap_or_else(|| protocol(kept)));
    };
    let mut tx = tx.into_inner();
    if done.is_ok()
        && let Some(alive) = D::ALIVE
    {
        match D::finds(&mut tx, alive).await {
            Ok(true) => {}
            Ok(false) => done = Err(protocol("the transaction ended inside its body")),
            Err(error) => done = Err(error.into()),
        }
    }
    match done {
        Ok(value) => {
            tx.commit().await?;
            Ok(value)
        }
        Err(error) => {
            // Awaited, so that its locks are gone before the next attempt; a connection that cannot
            // roll back is closed by the pool.
            let _ = tx.rollback().await;
            Err(error)
        }
    }
}

fn protocol<E: From<sqlx::Error>>(what: &str) -> E {
    sqlx::Error::Protocol(what.to_owned()).into()
}
