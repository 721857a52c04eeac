//! The database the caller chose.

use sqlx::{PgPool, SqlitePool};

use crate::audit::Books;
use crate::error::OrderError;
use crate::notice::Notice;
use crate::{postgres, sqlite};

/// What became of a notice that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivered {
    /// At least part of it was news.
    Booked,
    /// All of it was known, and the answer is the first one.
    Replayed,
}

impl Delivered {
    pub(crate) const fn by(replayed: bool) -> Self {
        if replayed {
            Self::Replayed
        } else {
            Self::Booked
        }
    }
}

/// Why there is no database to work on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CannotOpen {
    #[error("it is neither `sqlite://path` nor `postgres://…`")]
    UnknownKind,
    #[error("a SQLite database in memory ends with its connection; name a file")]
    InMemory,
    #[error("the server at {server} cannot be used: {error}")]
    Unreachable { server: String, error: sqlx::Error },
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Idem(#[from] idem::Error),
}

/// Cheap to clone: a clone is the same database.
#[derive(Clone, Debug)]
pub(crate) enum Database {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Database {
    /// Connects and brings the tables into being.
    pub(crate) async fn open(url: &str, concurrency: u16) -> Result<Self, CannotOpen> {
        match url.split_once(':').map_or("", |(kind, _)| kind) {
            "sqlite" => sqlite::open(url).await.map(Self::Sqlite),
            "postgres" | "postgresql" => postgres::open(url, concurrency).await.map(Self::Postgres),
            _ => Err(CannotOpen::UnknownKind),
        }
    }

    pub(crate) async fn deliver(&self, notice: &Notice) -> Result<Delivered, OrderError> {
        match self {
            Self::Sqlite(pool) => sqlite::delivery::deliver(pool, notice).await,
            Self::Postgres(pool) => postgres::delivery::deliver(pool, notice).await,
        }
    }

    /// Everything that is booked, as of one moment.
    pub(crate) async fn books(&self) -> Result<Books, OrderError> {
        match self {
            Self::Sqlite(pool) => sqlite::books::read(pool).await,
            Self::Postgres(pool) => postgres::books::read(pool).await,
        }
    }

    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}
