use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{AssertSqlSafe, PgPool, Postgres};
use tokio::time::{Instant, timeout};

use super::connection::Session;
use super::{SCOPE, busy, id, lock_id};
use crate::engine::{Backoff, holds, no_answer};
use crate::error::{Error, ErrorKind};
use crate::lock::keeper::Acquired;
use crate::lock::lane::Lanes;
use crate::lock::run::runs;
use crate::lock::{DEFAULT_WAIT, LockError, LockGuard, OnDrop, readable};
use crate::store::sql::{Migration, checked_own_table, classify};

/// The sequence of fencing numbers unless another one is named.
pub const DEFAULT_SEQUENCE: &str = "idem_lock_fence";

/// How long a session may be silent unless it is told otherwise.
pub const DEFAULT_SILENCE: Duration = Duration::from_secs(6);

/// Locks that are held by a Postgres session.
///
/// Each guard **owns its connection**, which is taken out of the pool for good and closed at the
/// end: no other session can be asked to unlock, and what dies with the holder is the lock. A lock
/// costs a connection of the server as long as it is held, or waited for at the head of the line.
///
/// The session is asked for a sign of life, three times in each [`silence`](Self::silence). A
/// session that died, or was silent for so long, is a lock that is lost
/// ([`is_lost`](LockGuard::is_lost)); between two signs the holder does not know. So write under the
/// fencing number: it comes from a sequence, drawn while the lock is held.
///
/// **Not through a pooler in transaction mode**: behind it the lock belongs to whoever gets that
/// session next. A pooler that changes sessions is found out and refused; one that happens to give
/// the same session each time cannot be. [`lock_tx`](super::lock_tx) works with any.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use idem_runtime::lock::advisory::AdvisoryLock;
///
/// let locks = AdvisoryLock::new(pool);
/// locks.migrate().await?;
/// let guard = locks.acquire("report:2026-07").await?;
/// println!("held under {}", guard.fence());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use]
pub struct AdvisoryLock {
    pool: PgPool,
    lanes: Arc<Lanes>,
    sequence: String,
    wait: Duration,
    silence: Duration,
}

impl AdvisoryLock {
    /// Locks in the database of this pool.
    pub fn new(pool: PgPool) -> Self {
        Self {
            pool,
            lanes: Arc::default(),
            sequence: DEFAULT_SEQUENCE.to_owned(),
            wait: DEFAULT_WAIT,
            silence: DEFAULT_SILENCE,
        }
    }

    /// Draws fencing numbers from another sequence, `name` or `schema.name`.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] if it cannot be a sequence's name.
    pub fn sequence(mut self, sequence: &str) -> Result<Self, Error> {
        checked_own_table(sequence)?.clone_into(&mut self.sequence);
        Ok(self)
    }

    /// How long [`acquire`](Self::acquire) waits, for its turn and for a connection as well.
    pub fn wait(mut self, budget: Duration) -> Self {
        self.wait = budget;
        self
    }

    /// How long the session may give no sign of life before the lock counts as lost.
    pub fn silence(mut self, silence: Duration) -> Self {
        self.silence = silence.clamp(Duration::from_millis(30), Duration::from_secs(86_400));
        self
    }

    /// The schema's step, to be printed into a migration tool of one's own.
    #[must_use]
    pub fn migrations(&self) -> Vec<Migration> {
        vec![Migration {
            version: 1,
            serves_from: 1,
            name: "lock",
            sql: format!(
                "CREATE SEQUENCE IF NOT EXISTS {} AS bigint NO CYCLE;\n",
                self.sequence
            ),
        }]
    }

    /// Creates the sequence. Safe to run in many processes at once.
    ///
    /// # Errors
    /// The database cannot be used.
    ///
    /// # Cancel safety
    /// All of it is done or nothing.
    pub async fn migrate(&self) -> Result<(), Error> {
        let failed = classify::<Postgres>;
        let mut tx = self.pool.begin().await.map_err(failed)?;
        // Two that create it at once would meet in the catalogue.
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(lock_id("idem.migrate"))
            .execute(&mut *tx)
            .await
            .map_err(failed)?;
        for step in self.migrations() {
            let step = sqlx::raw_sql(AssertSqlSafe(step.sql));
            step.execute(&mut *tx).await.map_err(failed)?;
        }
        tx.commit().await.map_err(failed)
    }

    /// Takes the lock, waiting for it if it is held.
    ///
    /// In this process those who wait get it in the order in which they came, and one of them has a
    /// connection.
    ///
    /// # Errors
    /// [`LockError::Busy`] when the wait is over; [`LockError::Failed`] if the database cannot be
    /// used, has no sequence, or is behind a pooler that changes sessions.
    ///
    /// # Cancel safety
    /// Who is dropped leaves the line; a lock that was asked for meanwhile ends with its connection,
    /// which is closed.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn acquire(&self, name: &str) -> Result<LockGuard, LockError> {
        self.claim(name, Some(self.wait)).await
    }

    /// Takes the lock if it is free now. It may wait for a connection, as long as the pool does.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn try_acquire(&self, name: &str) -> Result<LockGuard, LockError> {
        self.claim(name, None).await
    }

    runs!("The body is dropped, and the lock given back.");

    async fn claim(&self, name: &str, budget: Option<Duration>) -> Result<LockGuard, LockError> {
        let id = id(name);
        if holds(id) {
            return Err(LockError::Reentrant);
        }
        let at = |error: Error| LockError::from(error.at(SCOPE, Some(name), false, id));
        readable(name).map_err(at)?;
        let begun = Instant::now();
        let Ok(turn) = self.lanes.enter(id).turn(budget).await else {
            return Err(busy(name));
        };
        let left = || budget.map(|budget| budget.saturating_sub(begun.elapsed()));
        turn.be_courteous(left()).await;
        let (first, longest) = (Duration::from_millis(5), Duration::from_millis(250));
        let mut backoff = Backoff::new(left(), first, longest);
        // Who does not wait for the lock waits for the connection as long as the pool does.
        let opening = Session::open(&self.pool, id.lock_number());
        let Ok(opened) = timeout(left().unwrap_or(Duration::MAX), opening).await else {
            return Err(at(no_connection()));
        };
        let mut session = opened.map_err(at)?;
        loop {
            let sent_at = Instant::now();
            let fence = timeout(self.silence, session.lock(&self.sequence)).await;
            let Ok(fence) = fence else {
                return Err(at(no_answer()));
            };
            if let Some(fence) = fence.map_err(at)? {
                let acquired = Acquired {
                    holding: session,
                    id,
                    fence,
                    lease: self.silence,
                    sent_at,
                    on_drop: OnDrop::Release,
                };
                return acquired.keep(turn);
            }
            match backoff.next() {
                Some(pause) => {
                    turn.held_elsewhere(None);
                    tokio::time::sleep(pause).await;
                }
                None => return Err(busy(name)),
            }
        }
    }
}

fn no_connection() -> Error {
    Error::new(ErrorKind::StoreUnavailable).detail("the pool had no connection in time")
}

impl fmt::Debug for AdvisoryLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdvisoryLock")
            .field("sequence", &self.sequence)
            .field("wait", &self.wait)
            .field("silence", &self.silence)
            .finish_non_exhaustive()
    }
}
