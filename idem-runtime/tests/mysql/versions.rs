//! The optimistic lock.
//!
//! sqlx asks for the count of rows found; behind a proxy it may be that of rows changed.

use std::sync::Arc;
use std::time::Duration;

use idem_runtime::retry::{RetryPolicy, retry_transaction};
use idem_runtime::version::{VersionError, VersionedUpdate};
use sqlx::mysql::{MySql, MySqlPool};
use sqlx::{Connection as _, MySqlConnection};

use crate::database::Database;

async fn accounts() -> (Database, VersionedUpdate<MySql, 1>) {
    let db = Database::fresh().await;
    let versions = "ALTER TABLE account ADD version BIGINT NOT NULL DEFAULT 3";
    sqlx::raw_sql(versions).execute(&db.pool).await.unwrap();
    (db, VersionedUpdate::new("account", ["cents"]).unwrap())
}

async fn row(pool: &MySqlPool) -> (i64, i64) {
    let row = sqlx::query_as("SELECT cents, version FROM account WHERE id = 1");
    row.fetch_one(pool).await.unwrap()
}

#[tokio::test]
async fn sm_06_done_stale_gone() {
    let (db, update) = accounts().await;
    let mut conn = db.pool.acquire().await.unwrap();
    let done = update.apply(&mut conn, 1, 3, (70_i64,)).await.unwrap();
    assert_eq!(done.version, 4);
    let stale = update.apply(&mut conn, 1, 3, (60_i64,)).await.unwrap_err();
    assert!(matches!(
        stale,
        VersionError::Conflict {
            expected: 3,
            actual: Some(4),
            ..
        }
    ));
    let gone = update.apply(&mut conn, 9, 3, (60_i64,)).await.unwrap_err();
    assert!(matches!(gone, VersionError::NotFound), "{gone:?}");
    assert_eq!(row(&db.pool).await, (70, 4));
}

#[tokio::test]
async fn under_repeatable_read_the_version_that_is_committed_is_told() {
    let (db, update) = accounts().await;
    for snapshot_isolation in ["OFF", "ON"] {
        let set = format!("SET SESSION innodb_snapshot_isolation = {snapshot_isolation}");
        let mut conn = db.pool.acquire().await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(set))
            .execute(&mut *conn)
            .await
            .unwrap();
        let mut tx = sqlx::Connection::begin(&mut *conn).await.unwrap();
        let sql = "SELECT version FROM account WHERE id = 1";
        let seen: i64 = sqlx::query_scalar(sql).fetch_one(&mut *tx).await.unwrap();
        let mut other = db.pool.acquire().await.unwrap();
        let done = update.apply(&mut other, 1, seen, (1_i64,)).await.unwrap();
        let error = update.apply(&mut tx, 1, seen, (2_i64,)).await.unwrap_err();
        assert!(error.calls_for_retry(), "{error:?}");
        if snapshot_isolation == "OFF" {
            assert!(
                matches!(error, VersionError::Conflict { actual: Some(actual), .. }
                    if actual == done.version),
                "{error:?}"
            );
        }
        tx.rollback().await.unwrap();
        conn.close().await.unwrap();
    }
}

#[tokio::test]
async fn sm_05_a_batch_is_all_or_nothing() {
    let (db, update) = accounts().await;
    let mut tx = db.pool.begin().await.unwrap();
    let rows = [(1, 3, (70_i64,)), (2, 2, (70,))];
    let error = update.apply_all(&mut tx, rows).await.unwrap_err();
    tx.commit().await.unwrap();
    assert_eq!(error.row, Some(1));
    assert_eq!(row(&db.pool).await, (0, 3));
}

#[tokio::test]
async fn concurrent_increments_lose_none() {
    let (db, update) = accounts().await;
    let update = Arc::new(update);
    let policy = RetryPolicy::default()
        .attempts(10_000)
        .budget(Duration::from_secs(60));
    let tasks = (0..8).map(|_| {
        let (pool, update) = (db.pool.clone(), update.clone());
        tokio::spawn(async move {
            let update = &update;
            for _ in 0..10 {
                retry_transaction(&pool, policy, |mut tx| async move {
                    let read = "SELECT cents, version FROM account WHERE id = 1";
                    let (cents, version): (i64, i64) =
                        sqlx::query_as(read).fetch_one(&mut **tx).await?;
                    update.apply(&mut tx, 1, version, (cents + 1,)).await
                })
                .await
                .unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(row(&db.pool).await, (80, 83));
}

#[tokio::test]
async fn a_deadlock_that_the_body_swallows_is_no_commit() {
    let (db, update) = accounts().await;
    let (update, pool) = (&update, &db.pool);
    let done = retry_transaction(pool, RetryPolicy::default(), |mut tx| async move {
        update.apply(&mut tx, 1, 3, (70_i64,)).await?;
        // What a deadlock leaves behind: no transaction.
        sqlx::raw_sql("ROLLBACK").execute(&mut **tx).await?;
        Ok::<_, VersionError>(())
    });
    let error = done.await.unwrap_err();
    assert_eq!(error.attempts, 1);
    assert!(!error.error.calls_for_retry(), "{error}");
    assert_eq!(row(pool).await, (0, 3));
}

#[tokio::test]
async fn my_02_it_does_not_matter_what_the_connection_counts() {
    let (db, update) = accounts().await;
    let proxy = db.proxy();
    proxy.count_changed_rows();
    let changed = db.options_through(&proxy);
    let mut version = 3;
    for (options, counts) in [(db.options(), 1), (changed, 0)] {
        let mut conn = MySqlConnection::connect_with(&options).await.unwrap();
        let same = sqlx::query("UPDATE account SET cents = cents WHERE id = 1");
        let same = same.execute(&mut conn).await.unwrap();
        assert_eq!(same.rows_affected(), counts);

        let done = update.apply(&mut conn, 1, version, (0_i64,)).await.unwrap();
        assert_eq!(done.version, version + 1);
        let stale = update.apply(&mut conn, 1, version, (0_i64,)).await;
        let stale = stale.unwrap_err();
        version = done.version;
        assert!(
            matches!(stale, VersionError::Conflict { actual: Some(actual), .. } if actual == version),
            "{stale:?}"
        );
        let gone = update.apply(&mut conn, 9, version, (0_i64,)).await;
        assert!(matches!(gone, Err(VersionError::NotFound)), "{gone:?}");
        conn.close().await.unwrap();
    }
}

/// To a `DATETIME` one would be added as to the number of its digits.
#[tokio::test]
async fn a_version_that_is_a_time_is_refused() {
    let (db, _) = accounts().await;
    let time = "ALTER TABLE account ADD at DATETIME NOT NULL DEFAULT '2026-12-01 00:00:00'";
    sqlx::raw_sql(time).execute(&db.pool).await.unwrap();
    let update = VersionedUpdate::<MySql, _>::new("account", ["cents"]).unwrap();
    let update = update.version_column("at").unwrap();
    let mut conn = db.pool.acquire().await.unwrap();
    for error in [
        update.check(&mut conn).await.unwrap_err(),
        update
            .apply(&mut conn, 1, 20_261_201_000_000, (70_i64,))
            .await
            .unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(
            text.contains("`at` of `account`") && text.contains("datetime"),
            "{text}"
        );
    }
    assert_eq!(row(&db.pool).await.0, 0);
}

/// Without strict mode the largest number of a column stays as it is when one is added to it.
#[tokio::test]
async fn a_full_version_is_an_error_in_any_mode_of_the_session() {
    let (db, update) = accounts().await;
    let narrow =
        "ALTER TABLE account MODIFY version TINYINT NOT NULL; UPDATE account SET version = 127";
    sqlx::raw_sql(narrow).execute(&db.pool).await.unwrap();
    let mut conn = db.pool.acquire().await.unwrap();
    let set = sqlx::raw_sql("SET SESSION sql_mode = ''");
    set.execute(&mut *conn).await.unwrap();
    for cents in [1_i64, 2] {
        let full = update.apply(&mut conn, 1, 127, (cents,)).await.unwrap_err();
        assert_eq!(full.retry(), idem_runtime::Retry::Never, "{full}");
        assert_eq!(full.effect(), idem_runtime::Effect::None, "{full}");
    }
    assert_eq!(row(&db.pool).await.0, 0);
    let mode: String = sqlx::query_scalar("SELECT @@sql_mode")
        .fetch_one(&mut *conn)
        .await
        .unwrap();
    assert_eq!(mode, "", "the session's own mode is left alone");
}

#[tokio::test]
async fn values_and_ids_keep_their_types_and_names_their_letters() {
    let (db, _) = accounts().await;
    let table = "CREATE TABLE `order` (`user` BIGINT PRIMARY KEY, `group` DOUBLE, version INT NOT NULL); \
                 INSERT INTO `order` VALUES (1, 0, 0)";
    sqlx::raw_sql(table).execute(&db.pool).await.unwrap();
    let update = VersionedUpdate::<MySql, _>::new("order", ["group"]).unwrap();
    let update = update.id_column("user").unwrap();
    let mut conn = db.pool.acquire().await.unwrap();
    update.check(&mut conn).await.unwrap();
    for version in [0, 2] {
        let whole = update.apply(&mut conn, 1_i64, version, (7_i64,)).await;
        assert_eq!(whole.unwrap().version, version + 1);
        let part = update.apply(&mut conn, 1_i32, version + 1, (1.5_f64,));
        assert_eq!(part.await.unwrap().version, version + 2);
        let group: f64 = sqlx::query_scalar("SELECT `group` FROM `order`")
            .fetch_one(&mut *conn)
            .await
            .unwrap();
        assert_eq!(group, 1.5);
    }
}
