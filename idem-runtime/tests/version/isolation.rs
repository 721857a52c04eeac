//! Against another transaction that changes the row meanwhile.

use std::time::Duration;

use idem_runtime::version::VersionError;
use sqlx::{Connection as _, Postgres};

use crate::shop::{balance, is_conflict, postgres, row, sqlite};

#[tokio::test]
async fn an_update_waits_for_the_other_and_then_tells_what_is_committed() {
    let (pool, database) = postgres().await;
    let update = balance::<Postgres>();
    let mut first = pool.begin().await.unwrap();
    update.apply(&mut first, 1_i64, 3, (70_i64,)).await.unwrap();
    let second = {
        let (pool, update) = (pool.clone(), update.clone());
        tokio::spawn(async move {
            let mut tx = pool.begin().await.unwrap();
            let done = update.apply(&mut tx, 1_i64, 3, (60_i64,)).await;
            tx.commit().await.unwrap();
            done
        })
    };
    while database.waiting_for_lock().await == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    first.commit().await.unwrap();
    let error = second.await.unwrap().unwrap_err();
    assert!(is_conflict(&error, 3, Some(4)), "{error:?}");
    assert_eq!(row!(&pool, 1), (70, Some(4)));
}

#[tokio::test]
async fn an_older_snapshot_is_told_to_begin_again() {
    let (pool, _keep) = postgres().await;
    let update = balance::<Postgres>();
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let mut tx = pool.acquire().await.unwrap();
        let begin = format!("BEGIN ISOLATION LEVEL {level}");
        let mut tx = tx.begin_with(sqlx::AssertSqlSafe(begin)).await.unwrap();
        let (_, version) = row!(&mut *tx, 2);
        let mut other = pool.acquire().await.unwrap();
        let version = version.unwrap();
        update
            .apply(&mut other, 2_i64, version, (1_i64,))
            .await
            .unwrap();
        let error = update.apply(&mut tx, 2_i64, version, (2_i64,)).await;
        let error = error.unwrap_err();
        assert!(matches!(error, VersionError::Failed(_)), "{error:?}");
        assert!(error.calls_for_retry(), "{error:?}");
    }
}

#[tokio::test]
async fn a_deferred_transaction_on_sqlite_is_told_to_begin_again() {
    let (pool, _keep) = sqlite().await;
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(row!(&mut *tx, 1), (100, Some(3)));
    let mut other = pool.acquire().await.unwrap();
    balance::<sqlx::Sqlite>()
        .apply(&mut other, 1_i64, 3, (1_i64,))
        .await
        .unwrap();
    let error = balance::<sqlx::Sqlite>()
        .apply(&mut tx, 1_i64, 3, (2_i64,))
        .await;
    let error = error.unwrap_err();
    assert!(error.calls_for_retry(), "{error:?}");
}
