use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres, Row as _};

use crate::engine::{Lost, Renew};
use crate::error::{Effect, Error, ErrorKind, Retry};
use crate::lock::keeper::Holding;
use crate::protocol::Fence;
use crate::store::Held;
use crate::store::sql::classify;

/// How often an unlock is tried behind a pooler that gives another session each time.
const TRIES: usize = 16;

/// A session that is there for one lock. Dropping it closes the connection, and so ends the lock.
pub(super) struct Session {
    connection: Option<PgConnection>,
    lock: i64,
    /// The backend that has the lock.
    backend: i32,
}

/// A statement is sent as text, in one piece, so that a pooler cannot divide it between sessions.
macro_rules! ask {
    ($connection:expr, $($sql:tt)*) => {
        sqlx::raw_sql(AssertSqlSafe(format!($($sql)*))).fetch_one($connection).await
    };
}

impl Session {
    pub(super) async fn open(pool: &PgPool, lock: i64) -> Result<Self, Error> {
        let connection = pool.acquire().await.map_err(classify::<Postgres>)?;
        Ok(Self {
            connection: Some(connection.detach()),
            lock,
            backend: 0,
        })
    }

    /// Tries to lock. The number is drawn once the lock is had, so that it is higher than that of
    /// whoever had it before.
    pub(super) async fn lock(&mut self, sequence: &str) -> Result<Option<Fence>, Error> {
        let failed = |error| match classify::<Postgres>(error) {
            error if error.kind() == ErrorKind::Schema => {
                error.detail(format!("the sequence {sequence} is missing"))
            }
            error => error,
        };
        let connection = self.connection.as_mut().ok_or_else(gone)?;
        let lock = self.lock;
        let row = ask!(
            &mut *connection,
            "SELECT CASE WHEN pg_try_advisory_lock({lock}) THEN nextval('{sequence}') END, \
             pg_backend_pid()"
        )
        .map_err(failed)?;
        let Some(fence) = row.try_get::<Option<i64>, _>(0).map_err(failed)? else {
            return Ok(None);
        };
        self.backend = row.try_get(1).map_err(failed)?;
        let backend: i32 = ask!(connection, "SELECT pg_backend_pid()")
            .and_then(|row| row.try_get(0))
            .map_err(failed)?;
        if backend != self.backend {
            self.leave_pooler().await;
            return Err(pooled(self.backend, backend));
        }
        Ok(Some(Fence::new(u64::try_from(fence).unwrap_or_default())))
    }

    /// Tries to get back to the session that was locked.
    async fn leave_pooler(&mut self) {
        for _ in 0..TRIES {
            if !matches!(self.unlock().await, Ok((_, backend)) if backend != self.backend) {
                return;
            }
        }
    }

    /// Unlocks on the session that has the lock, and tells which one was asked.
    async fn unlock(&mut self) -> Result<(bool, i32), Error> {
        let failed = classify::<Postgres>;
        let connection = self.connection.as_mut().ok_or_else(gone)?;
        let (lock, locked) = (self.lock, self.backend);
        let row = ask!(
            connection,
            "SELECT CASE WHEN pg_backend_pid() = {locked} THEN pg_advisory_unlock({lock}) \
             ELSE false END, pg_backend_pid()"
        )
        .map_err(failed)?;
        Ok((
            row.try_get(0).map_err(failed)?,
            row.try_get(1).map_err(failed)?,
        ))
    }
}

impl Renew for Session {
    /// A sign of life. Whatever else comes back, the session is not what it was.
    async fn renew(&mut self) -> Result<Held, Error> {
        let Some(connection) = self.connection.as_mut() else {
            return Ok(Held::No);
        };
        let backend: Result<i32, _> =
            ask!(connection, "SELECT pg_backend_pid()").and_then(|row| row.try_get(0));
        Ok(match backend {
            Ok(backend) if backend == self.backend => Held::Yes,
            _ => Held::No,
        })
    }
}

impl Holding for Session {
    const ENDS: bool = false;

    async fn give_back(&mut self) -> Result<Held, Error> {
        if self.connection.is_none() {
            return Ok(Held::No);
        }
        let (unlocked, backend) = self.unlock().await?;
        if backend != self.backend {
            return Err(pooled(self.backend, backend));
        }
        if let Some(connection) = self.connection.take() {
            // It is unlocked; a farewell that fails changes nothing.
            let _ = connection.close().await;
        }
        Ok(if unlocked { Held::Yes } else { Held::No })
    }

    fn lost(&mut self, _: Lost) {
        tracing::warn!(lock = self.lock, "the session that held the lock was lost");
        // If it is alive after all it lets others have the lock.
        self.connection = None;
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::StoreUnavailable).detail("the session is closed")
}

fn pooled(locked: i32, asked: i32) -> Error {
    Error::new(ErrorKind::StoreUnavailable)
        .detail(format!(
            "session {locked} was locked and session {asked} answers: a pooler stands between, and \
             the lock may stay with its session; connect to the server itself, or use `lock_tx`"
        ))
        .effect_is(Effect::Unknown)
        .retry_is(Retry::Never)
}
