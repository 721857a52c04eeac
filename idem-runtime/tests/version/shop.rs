//! An account with a version, on each database.

use idem_runtime::version::{VersionDialect, VersionError, VersionedUpdate};
use idem_test_support::{Postgres, Sqlite, SqliteFile, TestDatabase};
use sqlx::{PgPool, SqlitePool};

pub(crate) const ACCOUNTS: &str = "CREATE TABLE account (id BIGINT PRIMARY KEY, \
     balance BIGINT NOT NULL, note TEXT, version BIGINT); \
     INSERT INTO account VALUES (1, 100, 'a', 3), (2, 100, 'b', 3), (3, 100, 'c', NULL);";

pub(crate) async fn postgres() -> (PgPool, TestDatabase) {
    let database = Postgres::database().await;
    let pool = database.pool(20).await;
    sqlx::raw_sql(ACCOUNTS).execute(&pool).await.unwrap();
    (pool, database)
}

pub(crate) async fn sqlite() -> (SqlitePool, SqliteFile) {
    let file = Sqlite::file().await;
    let pool = file.pool(20).await;
    sqlx::raw_sql(ACCOUNTS).execute(&pool).await.unwrap();
    (pool, file)
}

pub(crate) fn balance<D: VersionDialect>() -> VersionedUpdate<D, 1> {
    VersionedUpdate::new("account", ["balance"]).unwrap()
}

pub(crate) fn is_conflict(error: &VersionError, was: i64, is: Option<i64>) -> bool {
    matches!(error, VersionError::Conflict { expected, actual }
        if *expected == was && *actual == is)
}

/// The same tests on every database.
macro_rules! on_each {
    ($($test:ident)*) => {
        mod on_postgres { $(
            #[tokio::test]
            async fn $test() {
                let (pool, _keep) = crate::shop::postgres().await;
                super::$test!(pool, sqlx::Postgres);
            }
        )* }
        mod on_sqlite { $(
            #[tokio::test]
            async fn $test() {
                let (pool, _keep) = crate::shop::sqlite().await;
                super::$test!(pool, sqlx::Sqlite);
            }
        )* }
    };
}
pub(crate) use on_each;

/// `SELECT balance, version` of an account.
macro_rules! row {
    ($on:expr, $id:expr) => {
        sqlx::query_as::<_, (i64, Option<i64>)>(sqlx::AssertSqlSafe(format!(
            "SELECT balance, version FROM account WHERE id = {}",
            $id
        )))
        .fetch_one($on)
        .await
        .unwrap()
    };
}
pub(crate) use row;
