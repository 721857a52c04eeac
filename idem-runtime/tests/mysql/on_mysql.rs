//! The statements and the lock wait of MySQL, which MariaDB answers too.

use std::time::{Duration, Instant};

use idem_runtime::ErrorKind;
use idem_runtime::store::mysql::as_on_mysql;
use idem_runtime::store::sql::Records;
use sqlx::Connection as _;
use sqlx::mysql::MySqlTransaction;

use crate::database::Database;
use crate::service::{Body, PayError, note, pay_on};

/// Other than the default, so that a default is not mistaken for it.
const SESSION: &str = "SET SESSION innodb_lock_wait_timeout = 7";

async fn wait(tx: &mut MySqlTransaction<'_>) -> i64 {
    sqlx::query_scalar("SELECT CAST(@@SESSION.innodb_lock_wait_timeout AS SIGNED)")
        .fetch_one(&mut **tx)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_first_run_and_a_replay_leave_the_session_as_it_was() {
    let db = Database::fresh().await;
    let records = as_on_mysql(Records::default());
    let pool = db.pool(1, SESSION).await;
    let body = Body::default();
    for _ in 0..2 {
        let mut tx = pool.begin().await.unwrap();
        pay_on(&records, &mut tx, "1", 100, body.clone())
            .await
            .unwrap();
        assert_eq!(wait(&mut tx).await, 7);
        tx.commit().await.unwrap();
    }
    assert_eq!((body.runs(), db.orders().await), (1, 1));
}

#[tokio::test]
async fn a_duplicate_of_a_running_call_waits_in_the_server_for_a_second_and_asks_again() {
    let db = Database::fresh().await;
    let records = as_on_mysql(Records::default());
    let pool = db.pool(2, SESSION).await;
    let mut first = pool.begin().await.unwrap();
    let paid = pay_on(&records, &mut first, "1", 100, Body::default()).await;
    let mut second = pool.begin().await.unwrap();
    note(&mut second, "mine").await;
    let begun = Instant::now();
    let body = Body::default();
    let (again, ()) = tokio::join!(
        pay_on(&records, &mut second, "1", 100, body.clone()),
        async {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            first.commit().await.unwrap();
        }
    );
    assert!(begun.elapsed() < Duration::from_secs(4), "{begun:?}");
    assert_eq!(wait(&mut second).await, 7);
    second.commit().await.unwrap();
    assert_eq!((again.unwrap(), body.runs()), (paid.unwrap(), 0));
    assert_eq!(db.number("SELECT COUNT(*) FROM audit").await, 1);
}

#[tokio::test]
async fn what_a_dropped_call_left_behind_is_put_right_by_the_next() {
    let db = Database::fresh().await;
    let records = as_on_mysql(Records::default());
    let mut conn = db.pool(1, SESSION).await.acquire().await.unwrap().detach();
    let mut first = db.pool.begin().await.unwrap();
    pay_on(&records, &mut first, "1", 100, Body::default())
        .await
        .unwrap();
    let mut tx = conn.begin().await.unwrap();
    // Its statements are prepared: sqlx's driver cannot go on after a prepare that was dropped.
    pay_on(&records, &mut tx, "0", 100, Body::default())
        .await
        .unwrap();
    let held = pay_on(&records, &mut tx, "1", 100, Body::default());
    let dropped = tokio::time::timeout(Duration::from_millis(300), held).await;
    assert!(dropped.is_err());
    // The driver gives the answer to the dropped statement to the one after it.
    let late = sqlx::query("SELECT 1").execute(&mut *tx).await;
    assert!(late.is_err());
    assert_eq!(wait(&mut tx).await, 1);
    pay_on(&records, &mut tx, "2", 100, Body::default())
        .await
        .unwrap();
    assert_eq!(wait(&mut tx).await, 7);
    tx.rollback().await.unwrap();
    first.rollback().await.unwrap();
}

#[tokio::test]
async fn those_that_queue_when_the_first_rolls_back_run_once_after_a_retry() {
    let db = Database::fresh().await;
    let records = as_on_mysql(Records::default());
    let body = Body::default();
    let mut first = db.pool.begin().await.unwrap();
    pay_on(&records, &mut first, "1", 100, body.clone())
        .await
        .unwrap();
    let waiting = (0..4).map(|_| {
        let (pool, records, body) = (db.pool.clone(), records.clone(), body.clone());
        tokio::spawn(async move {
            loop {
                let mut tx = pool.begin().await?;
                let paid = pay_on(&records, &mut tx, "1", 100, body.clone()).await;
                match paid {
                    Ok(paid) => {
                        tx.commit().await?;
                        return Ok::<_, PayError>(paid);
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::RetryTransaction);
                        tx.rollback().await?;
                    }
                }
            }
        })
    });
    let waiting = waiting.collect::<Vec<_>>();
    tokio::time::sleep(Duration::from_millis(300)).await;
    first.rollback().await.unwrap();
    let mut answers = Vec::new();
    for call in waiting {
        answers.push(call.await.unwrap().unwrap());
    }
    answers.dedup();
    assert_eq!((answers.len(), body.runs()), (1, 2));
    assert_eq!((db.orders().await, db.records().await), (1, 1));
}
