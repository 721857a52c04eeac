//! The error type of the functions under test, and a fresh database of each kind.

use std::error::Error as _;

use idem::{Effect, ErrorKind};
use serde::{Deserialize, Serialize};

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

    /// The database's code, wherever in the chain it stands.
    pub(crate) fn code(&self) -> Option<String> {
        let database = match self {
            Self::Sql(error) => error,
            other => other.idem().source()?.downcast_ref::<sqlx::Error>()?,
        };
        Some(database.as_database_error()?.code()?.into_owned())
    }
}

/// A payload: `no` is the key.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Order {
    pub(crate) no: u64,
    pub(crate) cents: i64,
}

pub(crate) fn order(no: u64) -> Order {
    Order { no, cents: 500 }
}

/// An outcome that tells in which run of the body it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) no: u64,
    pub(crate) run: usize,
}

const EFFECT: &str = "CREATE TABLE effect (no BIGINT NOT NULL, cents BIGINT NOT NULL)";

pub(crate) mod postgres {
    use std::time::Duration;

    use idem_test_support::{Postgres, Proxy, TestDatabase, proxy::Direction};

    pub(crate) type Db = sqlx::Postgres;
    pub(crate) type Pool = sqlx::PgPool;

    /// A database of the test's own with the record table and a table for effects.
    pub(crate) struct Fresh(pub(crate) TestDatabase);

    impl Fresh {
        pub(crate) async fn new() -> Self {
            let database = Postgres::database().await;
            database.execute(super::EFFECT).await;
            let pool = database.pool(1).await;
            idem::store::postgres::migrate(&pool).await.unwrap();
            pool.close().await;
            Self(database)
        }

        pub(crate) async fn pool(&self, max: u32) -> Pool {
            self.0.pool(max).await
        }

        /// A pool whose answers come late, and what makes them late.
        pub(crate) async fn slow_pool(&self, max: u32) -> (Proxy, Pool) {
            let (proxy, pool) = self.proxied(max);
            proxy.delay(Direction::ToClient, Duration::from_millis(2));
            (proxy, pool)
        }

        pub(crate) fn url(&self) -> String {
            self.0.url().to_owned()
        }

        /// A proxy, and a pool by way of it whose first connection is not made yet.
        pub(crate) fn proxied(&self, max: u32) -> (Proxy, Pool) {
            let proxy = self.0.proxy();
            let pool = self.0.pool_through(&proxy, max);
            (proxy, pool)
        }
    }

    pub(crate) async fn pool_of(url: &str, max: u32) -> Pool {
        idem_test_support::postgres::pool(url, max).await
    }

    pub(crate) async fn migrate(store: &impl idem::store::sql::OwnPool<Db = Db>) {
        idem::store::postgres::migrate(store).await.unwrap();
    }
}

pub(crate) mod sqlite {
    use std::time::Duration;

    use idem_test_support::{Sqlite, SqliteFile};
    use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

    pub(crate) type Db = sqlx::Sqlite;
    pub(crate) type Pool = sqlx::SqlitePool;

    /// A file of the test's own with the record table and a table for effects.
    pub(crate) struct Fresh(SqliteFile);

    impl Fresh {
        pub(crate) async fn new() -> Self {
            let file = Sqlite::file().await;
            let pool = file.pool(1).await;
            sqlx::query(super::EFFECT).execute(&pool).await.unwrap();
            idem::store::sqlite::migrate(&pool).await.unwrap();
            pool.close().await;
            Self(file)
        }

        pub(crate) async fn pool(&self, max: u32) -> Pool {
            self.0.pool(max).await
        }

        pub(crate) fn options(&self) -> SqliteConnectOptions {
            self.0.options()
        }

        /// SQLite answers from a thread of its own: every answer is late.
        pub(crate) async fn slow_pool(&self, max: u32) -> ((), Pool) {
            ((), self.pool(max).await)
        }

        pub(crate) fn url(&self) -> String {
            self.0.url()
        }
    }

    pub(crate) async fn pool_of(url: &str, max: u32) -> Pool {
        let options: SqliteConnectOptions = url.parse().unwrap();
        SqlitePoolOptions::new()
            .max_connections(max)
            .connect_with(options.busy_timeout(Duration::from_secs(10)))
            .await
            .unwrap()
    }

    pub(crate) async fn migrate(store: &impl idem::store::sql::OwnPool<Db = Db>) {
        idem::store::sqlite::migrate(store).await.unwrap();
    }
}
