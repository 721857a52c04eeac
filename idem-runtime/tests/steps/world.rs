//! A fresh database of each kind, with the tables of sagas and of the shop.

use std::time::Duration;

use idem_runtime::retry::Retryable as _;
use idem_runtime::steps::{SagaDialect, SagaTable};
use idem_test_support::{MariaDb, MariaDbDatabase, Postgres, Sqlite, SqliteFile, TestDatabase};
use sqlx::{AssertSqlSafe, Pool, SqlSafeStr as _};

/// No key on `effect`: what a step does twice is seen twice.
const SHOP: &str = "CREATE TABLE effect (step VARCHAR(50) NOT NULL, no BIGINT NOT NULL, \
     undone BIGINT NOT NULL, reference VARCHAR(100) NOT NULL); \
     CREATE TABLE other_side (okey VARCHAR(64) PRIMARY KEY, step VARCHAR(50) NOT NULL, \
     no BIGINT NOT NULL, undone BIGINT NOT NULL, reference VARCHAR(100) NOT NULL, \
     calls BIGINT NOT NULL, fence BIGINT NOT NULL);";

#[allow(
    dead_code,
    clippy::large_enum_variant,
    reason = "kept for their drop, one in each test"
)]
pub(crate) enum Keep {
    Postgres(TestDatabase),
    Sqlite(SqliteFile),
    MariaDb(MariaDbDatabase),
}

pub(crate) struct World<D: SagaDialect> {
    pub(crate) pool: Pool<D>,
    pub(crate) url: String,
    pub(crate) keep: Keep,
}

pub(crate) async fn postgres() -> World<sqlx::Postgres> {
    let database = Postgres::database().await;
    let pool = database.pool(20).await;
    SagaTable::default().migrate(&pool).await.unwrap();
    sqlx::raw_sql(SHOP).execute(&pool).await.unwrap();
    World {
        url: database.url().to_owned(),
        pool,
        keep: Keep::Postgres(database),
    }
}

pub(crate) async fn sqlite() -> World<sqlx::Sqlite> {
    let file = Sqlite::file().await;
    let pool = file.pool(6).await;
    SagaTable::default().migrate(&pool).await.unwrap();
    sqlx::raw_sql(SHOP).execute(&pool).await.unwrap();
    World {
        url: file.url(),
        pool,
        keep: Keep::Sqlite(file),
    }
}

pub(crate) async fn mariadb() -> World<sqlx::MySql> {
    let database = MariaDb::database().await;
    let pool = database.pool(20).await;
    SagaTable::default().migrate(&pool).await.unwrap();
    sqlx::raw_sql(SHOP).execute(&pool).await.unwrap();
    World {
        url: database.url().to_owned(),
        pool,
        keep: Keep::MariaDb(database),
    }
}

/// The pool of a child, by the URL that its parent gave it, handed to code for any database.
macro_rules! with_pool {
    ($url:expr, $run:ident($($arg:expr),*)) => {{
        let url: &str = $url;
        if url.starts_with("sqlite") {
            let options: sqlx::sqlite::SqliteConnectOptions = url.parse().unwrap();
            let options = options.busy_timeout(std::time::Duration::from_secs(20));
            let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
            $run(pool, $($arg),*).await;
        } else if url.starts_with("mysql") {
            let pool = sqlx::MySqlPool::connect(url).await.unwrap();
            $run(pool, $($arg),*).await;
        } else {
            let pool = sqlx::PgPool::connect(url).await.unwrap();
            $run(pool, $($arg),*).await;
        }
    }};
}
pub(crate) use with_pool;

/// The same tests on each database.
macro_rules! on_each {
    ($($test:ident)*) => {
        $crate::world::on_each!(@ on_postgres, postgres: $($test)*);
        $crate::world::on_each!(@ on_sqlite, sqlite: $($test)*);
        $crate::world::on_each!(@ on_mariadb, mariadb: $($test)*);
    };
    (@ $module:ident, $make:ident: $($test:ident)*) => {
        mod $module { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test($crate::world::$make().await).await;
            }
        )* }
    };
}
pub(crate) use on_each;

/// Runs a statement.
pub(crate) async fn run<D: SagaDialect>(
    conn: &mut D::Connection,
    sql: impl Into<String>,
) -> Result<u64, sqlx::Error> {
    let sql = AssertSqlSafe(sql.into()).into_sql_str();
    D::execute(conn, &sql, D::Arguments::default()).await
}

/// Asks for one number.
pub(crate) async fn number<D: SagaDialect>(pool: &Pool<D>, sql: impl Into<String>) -> i64 {
    let sql = AssertSqlSafe(sql.into()).into_sql_str();
    let mut conn = pool.acquire().await.unwrap();
    let read = D::read_integer(&mut conn, sql, D::Arguments::default()).await;
    read.unwrap().flatten().unwrap()
}

impl<D: SagaDialect> World<D> {
    /// Ends all leases and pauses, as time would.
    pub(crate) async fn let_time_pass(&self) {
        let past = match D::INDEX {
            1 => "0",
            _ => "'2001-01-01'",
        };
        let sql = format!("UPDATE idem_saga SET due_at = {past} WHERE due_at IS NOT NULL");
        let mut conn = self.pool.acquire().await.unwrap();
        // All rows in one statement: a run that writes its own may be in the way.
        while let Err(error) = run::<D>(&mut conn, sql.clone()).await {
            assert!(error.calls_for_retry(), "{error}");
        }
    }

    /// Waits until the condition, a number, is not 0.
    pub(crate) async fn until(&self, sql: &str) {
        for _ in 0..3000 {
            if number(&self.pool, sql).await != 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("after thirty seconds still not: {sql}");
    }
}
