//! The error type of the functions under test, and a SQLite database for the caller's transaction.

use idem::{Effect, ErrorKind};
use idem_test_support::{Sqlite, SqliteFile};
use serde::{Deserialize, Serialize};
use sqlx::{SqlitePool, SqliteTransaction};

#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum Failure {
    #[error(transparent)]
    #[serde(skip)]
    Idem(#[from] idem::Error),
    #[error(transparent)]
    #[serde(skip)]
    Sql(#[from] sqlx::Error),
    /// May be tried again.
    #[error("busy")]
    Busy,
    /// Final.
    #[error("declined: {0}")]
    Declined(String),
}

impl Failure {
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Declined(_))
    }

    /// The framework's error; everything else fails the test.
    pub(crate) fn idem(&self) -> &idem::Error {
        match self {
            Self::Idem(error) => error,
            other => panic!("not an error of the framework: {other:?}"),
        }
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        self.idem().kind()
    }

    pub(crate) fn effect(&self) -> Effect {
        self.idem().effect()
    }
}

/// A SQLite file with the record table and a table for effects.
pub(crate) struct Fresh {
    pub(crate) pool: SqlitePool,
    pub(crate) file: SqliteFile,
}

impl Fresh {
    pub(crate) async fn new() -> Self {
        let file = Sqlite::file().await;
        let pool = file.pool(2).await;
        idem::store::sqlite::migrate(&pool).await.unwrap();
        sqlx::query("CREATE TABLE effect (what TEXT NOT NULL)")
            .execute(&pool)
            .await
            .unwrap();
        Self { pool, file }
    }

    /// A transaction as a caller begins it.
    pub(crate) async fn begin(&self) -> SqliteTransaction<'static> {
        self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap()
    }

    pub(crate) async fn effects(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM effect")
            .fetch_one(&self.pool)
            .await
            .unwrap()
    }
}

/// A call in a transaction that is committed if it succeeds, as a caller would write it.
macro_rules! committed {
    ($fresh:expr, $tx:ident => $call:expr) => {{
        let mut begun = $fresh.begin().await;
        let $tx = &mut begun;
        match $call.await {
            Ok(value) => begun.commit().await.map(|()| value).map_err(Failure::from),
            Err(error) => {
                begun.rollback().await.unwrap();
                Err(error)
            }
        }
    }};
}
pub(crate) use committed;

pub(crate) async fn write(tx: &mut SqliteTransaction<'_>, what: &str) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO effect (what) VALUES ($1)")
        .bind(what)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
