//! Items, what goes wrong with them, and a fresh database of each kind.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idem::ErrorKind;
use idem::batch::{Outcome, Report};
use serde::{Deserialize, Serialize};

#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum Failure {
    #[error(transparent)]
    #[serde(skip)]
    Idem(#[from] idem::Error),
    #[error(transparent)]
    #[serde(skip)]
    Sql(#[from] sqlx::Error),
    #[error("busy")]
    Busy,
}

impl Failure {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Idem(error) => error.kind(),
            other => panic!("not an error of the framework: {other:?}"),
        }
    }
}

/// `no` is the key, `cents` the payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Item {
    pub(crate) no: u64,
    pub(crate) cents: i64,
}

pub(crate) fn items(numbers: impl IntoIterator<Item = u64>) -> Vec<Item> {
    let item = |no| Item { no, cents: 100 };
    numbers.into_iter().map(item).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Fails,
    TooLarge,
    Panics,
    Hangs,
}

/// What goes wrong with which item, and how often bodies ran.
#[derive(Debug, Default)]
pub(crate) struct World {
    faults: Mutex<HashMap<u64, Fault>>,
    runs: AtomicUsize,
    pub(crate) hanging: tokio::sync::Notify,
}

impl World {
    pub(crate) fn with(no: u64, fault: Fault) -> Self {
        let world = Self::default();
        world.faults.lock().unwrap().insert(no, fault);
        world
    }

    pub(crate) fn heal(&self) {
        self.faults.lock().unwrap().clear();
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// The end of a body, after its effect.
    pub(crate) async fn end(&self, no: u64) -> Result<String, Failure> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst);
        let fault = self.faults.lock().unwrap().get(&no).copied();
        match fault {
            None => Ok(format!("{no}-{run}")),
            Some(Fault::Fails) => Err(Failure::Busy),
            Some(Fault::TooLarge) => Ok("x".repeat(1000)),
            Some(Fault::Panics) => panic!("item {no} panics"),
            Some(Fault::Hangs) => {
                self.hanging.notify_one();
                std::future::pending().await
            }
        }
    }
}

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// `n` new, `r` replayed, `m` mismatch, `f` failed.
pub(crate) fn kinds<T, E>(report: &Report<T, E>) -> String {
    let kind = |outcome: &Outcome<T, E>| match outcome {
        Outcome::New(_) => 'n',
        Outcome::Replayed(_) => 'r',
        Outcome::Mismatch(_) => 'm',
        Outcome::Failed(_) => 'f',
        _ => '?',
    };
    report.outcomes.iter().map(kind).collect()
}

/// The item's number in each value, 0 where there is none.
pub(crate) fn numbers<E>(report: &Report<String, E>) -> Vec<u64> {
    let of = |outcome: &Outcome<String, E>| match outcome.value() {
        Some(value) => value.split('-').next().unwrap().parse().unwrap(),
        None => 0,
    };
    report.outcomes.iter().map(of).collect()
}

macro_rules! database {
    ($db:ty, $pool:ty, $insert:literal, $effects:literal) => {
        pub(crate) type Db = $db;
        pub(crate) type Pool = $pool;
        pub(crate) type Tx<'c> = sqlx::Transaction<'c, Db>;

        pub(crate) async fn effect(tx: &mut Tx<'_>, no: u64) -> Result<(), sqlx::Error> {
            let insert = sqlx::query($insert).bind(i64::try_from(no).unwrap());
            insert.execute(&mut **tx).await.map(|_| ())
        }

        impl Fresh {
            /// How often each effect was committed.
            pub(crate) async fn effects(&self) -> Vec<(i64, i64)> {
                sqlx::query_as($effects)
                    .fetch_all(&self.pool)
                    .await
                    .unwrap()
            }

            /// Each of these once, and no other.
            pub(crate) async fn assert_once(&self, numbers: impl IntoIterator<Item = i64>) {
                let once: Vec<_> = numbers.into_iter().map(|no| (no, 1)).collect();
                assert_eq!(self.effects().await, once);
            }

            pub(crate) async fn run(&self, sql: &'static str) -> u64 {
                let done = sqlx::raw_sql(sql).execute(&self.pool).await.unwrap();
                done.rows_affected()
            }
        }
    };
}

const EFFECT: &str = "CREATE TABLE effect (no BIGINT NOT NULL)";

pub(crate) mod postgres {
    use idem_test_support::{Postgres, TestDatabase};

    pub(crate) const NAME: &str = "postgres";

    pub(crate) struct Fresh {
        pub(crate) pool: Pool,
        database: TestDatabase,
    }

    impl Fresh {
        pub(crate) async fn open() -> Self {
            let database = Postgres::database().await;
            database.execute(super::EFFECT).await;
            let pool = database.pool(8).await;
            idem::store::postgres::migrate(&pool).await.unwrap();
            Self { pool, database }
        }

        pub(crate) fn url(&self) -> String {
            self.database.url().to_owned()
        }
    }

    pub(crate) async fn pool_of(url: &str) -> Pool {
        idem_test_support::postgres::pool(url, 4).await
    }

    pub(crate) async fn begin(pool: &Pool) -> Tx<'static> {
        pool.begin().await.unwrap()
    }

    database! {
        sqlx::Postgres, sqlx::PgPool, "INSERT INTO effect VALUES ($1)",
        "SELECT no, count(*) FROM effect GROUP BY no ORDER BY no"
    }
}

pub(crate) mod sqlite {
    use std::time::Duration;

    use idem_test_support::{Sqlite, SqliteFile};
    use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

    pub(crate) const NAME: &str = "sqlite";

    pub(crate) struct Fresh {
        pub(crate) pool: Pool,
        file: SqliteFile,
    }

    impl Fresh {
        pub(crate) async fn open() -> Self {
            let file = Sqlite::file().await;
            let pool = file.pool(8).await;
            idem::store::sqlite::migrate(&pool).await.unwrap();
            let fresh = Self { pool, file };
            fresh.run(super::EFFECT).await;
            fresh
        }

        pub(crate) fn url(&self) -> String {
            self.file.url()
        }
    }

    pub(crate) async fn pool_of(url: &str) -> Pool {
        let options: SqliteConnectOptions = url.parse().unwrap();
        let options = options.busy_timeout(Duration::from_secs(10));
        let pool = SqlitePoolOptions::new().max_connections(4);
        pool.connect_with(options).await.unwrap()
    }

    pub(crate) async fn begin(pool: &Pool) -> Tx<'static> {
        pool.begin_with("BEGIN IMMEDIATE").await.unwrap()
    }

    database! {
        sqlx::Sqlite, sqlx::SqlitePool, "INSERT INTO effect VALUES ($1)",
        "SELECT no, count(*) FROM effect GROUP BY no ORDER BY no"
    }
}

pub(crate) mod mysql {
    use idem_test_support::{MariaDb, MariaDbDatabase, mariadb};

    pub(crate) const NAME: &str = "mysql";

    pub(crate) struct Fresh {
        pub(crate) pool: Pool,
        database: MariaDbDatabase,
    }

    impl Fresh {
        pub(crate) async fn open() -> Self {
            let database = MariaDb::database().await;
            let pool = database.pool(8).await;
            idem::store::mysql::migrate(&pool).await.unwrap();
            let fresh = Self { pool, database };
            fresh.run(super::EFFECT).await;
            fresh
        }

        pub(crate) fn url(&self) -> String {
            self.database.url().to_owned()
        }
    }

    pub(crate) async fn pool_of(url: &str) -> Pool {
        mariadb::pool(url, 4).await
    }

    pub(crate) async fn begin(pool: &Pool) -> Tx<'static> {
        pool.begin().await.unwrap()
    }

    database! {
        sqlx::MySql, sqlx::MySqlPool, "INSERT INTO effect VALUES (?)",
        "SELECT no, count(*) FROM effect GROUP BY no ORDER BY no"
    }
}
