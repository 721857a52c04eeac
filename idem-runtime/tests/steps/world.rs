//! A fresh database of each kind, with the tables of sagas and of the shop.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idem_runtime::steps::{SagaDialect, SagaTable};
use idem_runtime::version::Retryable as _;
use idem_test_support::{Postgres, Sqlite, SqliteFile, TestDatabase};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{AssertSqlSafe, Connection as _, MySqlPool, Pool, SqlSafeStr as _};

/// No key on `effect`: what a step does twice is seen twice.
const SHOP: &str = "CREATE TABLE effect (step VARCHAR(50) NOT NULL, no BIGINT NOT NULL, \
     undone BIGINT NOT NULL, reference VARCHAR(100) NOT NULL); \
     CREATE TABLE other_side (okey VARCHAR(64) PRIMARY KEY, step VARCHAR(50) NOT NULL, \
     no BIGINT NOT NULL, undone BIGINT NOT NULL, reference VARCHAR(100) NOT NULL, \
     calls BIGINT NOT NULL, fence BIGINT NOT NULL);";

#[allow(dead_code, reason = "kept for their drop")]
pub(crate) enum Keep {
    Postgres(TestDatabase),
    Sqlite(SqliteFile),
    MariaDb(MariaDb),
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
    let database = MariaDb::fresh().await;
    let pool = mysql_pool(&database.url, 20).await;
    SagaTable::default().migrate(&pool).await.unwrap();
    sqlx::raw_sql(SHOP).execute(&pool).await.unwrap();
    World {
        url: database.url.clone(),
        pool,
        keep: Keep::MariaDb(database),
    }
}

async fn mysql_pool(url: &str, size: u32) -> MySqlPool {
    let pool = MySqlPoolOptions::new().max_connections(size);
    pool.connect(url).await.unwrap()
}

/// A database that is dropped with this value.
pub(crate) struct MariaDb {
    server: String,
    name: String,
    url: String,
}

impl MariaDb {
    async fn fresh() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let server = ["IDEM_TEST_MYSQL_URL", "IDEM_TEST_MARIADB_URL"]
            .iter()
            .find_map(|name| std::env::var(name).ok().filter(|url| !url.is_empty()))
            .expect("a MariaDB server (IDEM_TEST_MARIADB_URL): run the tests with `scripts/test`");
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("idem_steps_{}_{count}", std::process::id());
        let sql = format!("DROP DATABASE IF EXISTS {name}; CREATE DATABASE {name}");
        execute(&server, sql).await.unwrap();
        let (base, _) = server.rsplit_once('/').unwrap();
        let url = format!("{base}/{name}");
        Self { server, name, url }
    }
}

async fn execute(server: &str, sql: String) -> Result<(), sqlx::Error> {
    let mut conn = sqlx::MySqlConnection::connect(server).await?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
    conn.close().await
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the test database is kept: {}", self.url);
            return;
        }
        let (server, sql) = (self.server.clone(), format!("DROP DATABASE {}", self.name));
        // A runtime of its own: the test's may be shut down.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(execute(&server, sql)).ok();
        });
        dropped.join().ok();
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
    let read = D::read_version(&mut conn, &sql, D::Arguments::default()).await;
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
