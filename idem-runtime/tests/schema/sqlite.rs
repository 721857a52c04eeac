//! What `check` sees in SQLite.

use idem_runtime::store::sql::LeasedSql;
use idem_runtime::store::sqlite::{check, migrate};
use idem_test_support::Sqlite;
use sqlx::SqlitePool;
use sqlx::sqlite::SqlitePoolOptions;

use crate::world::{Kind as _, calls, migrate_all};

async fn refused(pool: &SqlitePool, expected: &str) {
    let error = check(pool).await.unwrap_err().to_string();
    assert!(error.contains(expected), "{expected}: {error}");
}

#[tokio::test]
async fn what_would_break_the_promise_is_refused() {
    let file = Sqlite::file().await;
    let pool = file.pool(1).await;
    migrate_all(&pool).await.unwrap();
    for (change, back, expected) in [
        (
            "CREATE TRIGGER t BEFORE INSERT ON idem_record BEGIN SELECT RAISE(IGNORE); END",
            "DROP TRIGGER t",
            "the trigger t on idem_record",
        ),
        (
            "CREATE TEMP TRIGGER t AFTER UPDATE ON idem_record BEGIN SELECT 1; END",
            "DROP TRIGGER t",
            "the trigger t on idem_record",
        ),
        (
            "CREATE TEMP TABLE idem_record (id INTEGER)",
            "DROP TABLE temp.idem_record",
            "a temporary table",
        ),
        (
            "PRAGMA query_only = ON",
            "PRAGMA query_only = OFF",
            "takes no writes",
        ),
        (
            "PRAGMA read_uncommitted = ON",
            "PRAGMA read_uncommitted = OFF",
            "read_uncommitted is on",
        ),
        (
            "PRAGMA foreign_keys = OFF",
            "PRAGMA foreign_keys = ON",
            "foreign_keys",
        ),
    ] {
        sqlx::Sqlite::run(&pool, change).await.unwrap();
        refused(&pool, expected).await;
        sqlx::Sqlite::run(&pool, back).await.unwrap();
        check(&pool).await.unwrap();
    }
    // The one that keeps fences growing is ours.
    LeasedSql::new(pool.clone()).check().await.unwrap();
    calls(&pool, 1).await;
}

#[tokio::test]
async fn a_file_that_is_opened_for_reading_is_refused() {
    let file = Sqlite::file().await;
    migrate(&file.pool(1).await).await.unwrap();
    let options = file.options().read_only(true).create_if_missing(false);
    let pool = SqlitePoolOptions::new()
        .connect_with(options)
        .await
        .unwrap();
    refused(&pool, "takes no writes").await;
}

/// One that writes for long holds no check up for longer than it would a call, nor fails it.
#[tokio::test]
async fn a_writer_fails_no_check() {
    let file = Sqlite::file().await;
    let pool = file.pool(2).await;
    migrate(&pool).await.unwrap();
    let options = file
        .options()
        .busy_timeout(std::time::Duration::from_millis(10));
    let other = SqlitePoolOptions::new()
        .connect_with(options)
        .await
        .unwrap();
    let writer = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    check(&other).await.unwrap();
    writer.rollback().await.unwrap();
}
