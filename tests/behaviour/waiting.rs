//! Duplicates of a running call, in the caller's Postgres transaction.

use std::time::{Duration, Instant};

use idem::{ErrorKind, Retry, idempotent, observe};
use idem_test_support::{Body, Postgres, TestDatabase};
use sqlx::{PgPool, PgTransaction};

use crate::support::Failure;

#[idempotent(key = "{no}", ttl = "1h", store = tx, wait = "1s")]
async fn pay(
    tx: &mut PgTransaction<'_>,
    no: u64,
    cents: i64,
    body: &Body,
) -> Result<usize, Failure> {
    sqlx::query("INSERT INTO effect (no) VALUES ($1)")
        .bind(no as i64)
        .execute(&mut **tx)
        .await?;
    Ok(body.run().await)
}

async fn fresh() -> (TestDatabase, PgPool) {
    let database = Postgres::database().await;
    database.execute("CREATE TABLE effect (no BIGINT)").await;
    let pool = database.pool(4).await;
    idem::store::postgres::migrate(&pool).await.unwrap();
    (database, pool)
}

async fn effects(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM effect")
        .fetch_one(pool)
        .await
        .unwrap()
}

/// Calls in a transaction of its own, as another process would.
fn another(
    pool: &PgPool,
    body: &Body,
) -> tokio::task::JoinHandle<(Result<usize, Failure>, idem::Observed)> {
    let (pool, body) = (pool.clone(), body.clone());
    tokio::spawn(async move {
        let mut tx = pool.begin().await.unwrap();
        let (answer, seen) = observe(pay(&mut tx, 1, 5, &body)).await;
        if answer.is_ok() {
            tx.commit().await.unwrap();
        }
        (answer, seen)
    })
}

#[tokio::test]
async fn ip_14_a_and_b_the_callers_commit_or_roll_back_decides() {
    for commits in [true, false] {
        let (_database, pool) = fresh().await;
        let body = Body::new();
        let mut tx = pool.begin().await.unwrap();
        assert_eq!(pay(&mut tx, 1, 5, &body).await.unwrap(), 1);
        // The body is over, the transaction is not: the call still counts as running.
        let second = another(&pool, &body);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!second.is_finished());
        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        let (answer, seen) = second.await.unwrap();
        assert_eq!(seen.replayed(), commits);
        assert_eq!(answer.unwrap(), if commits { 1 } else { 2 });
        assert_eq!(effects(&pool).await, 1);
    }
}

#[tokio::test]
async fn ip_14_c_and_e_a_wait_that_ends_leaves_the_callers_transaction_as_it_was() {
    let (_database, pool) = fresh().await;
    let body = Body::new();
    let mut first = pool.begin().await.unwrap();
    pay(&mut first, 1, 5, &body).await.unwrap();

    let mut tx = pool.begin().await.unwrap();
    sqlx::query("INSERT INTO effect (no) VALUES (100)")
        .execute(&mut *tx)
        .await
        .unwrap();
    // Dropped while it waits.
    let waiter = pay(&mut tx, 1, 5, &body);
    let dropped = tokio::time::timeout(Duration::from_millis(60), waiter).await;
    assert!(dropped.is_err());
    // Waits to its end.
    let begun = Instant::now();
    let error = pay(&mut tx, 1, 5, &body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InProgress);
    assert!(matches!(error.idem().retry(), Retry::Later(Some(_))));
    assert!(begun.elapsed() >= Duration::from_secs(1));
    sqlx::query("INSERT INTO effect (no) VALUES (101)")
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    first.rollback().await.unwrap();
    assert_eq!(effects(&pool).await, 2, "both of the caller's own");
}

#[tokio::test]
async fn ip_14_d_a_first_call_that_is_dropped_with_its_transaction_gives_way() {
    let (_database, pool) = fresh().await;
    let body = Body::held();
    let first = another(&pool, &body);
    body.started(1).await;
    let second = another(&pool, &body);
    tokio::task::yield_now().await;
    first.abort();
    body.started(2).await;
    body.release();
    assert_eq!(second.await.unwrap().0.unwrap(), 2);
    assert_eq!(effects(&pool).await, 1);
}

#[tokio::test]
async fn a8_another_payload_is_refused_after_the_first_call() {
    let (_database, pool) = fresh().await;
    let body = Body::new();
    let mut tx = pool.begin().await.unwrap();
    pay(&mut tx, 1, 5, &body).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    let error = pay(&mut tx, 1, 6, &body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FingerprintMismatch);
    // The caller's transaction is not hurt by it.
    assert_eq!(pay(&mut tx, 1, 5, &body).await.unwrap(), 1);
    assert_eq!(pay(&mut tx, 2, 6, &body).await.unwrap(), 2);
    tx.commit().await.unwrap();
    assert_eq!(effects(&pool).await, 2);
}
