//! Equal calls of one process while the first of them gets nowhere.

use std::time::{Duration, Instant};

use idem::{Effect, ErrorKind, Retry, idempotent, store::sql::Records};
use idem_test_support::Body;
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinSet;

use crate::{
    postgres::{
        calls::{pay_now, write},
        db::{Fresh, Pool},
    },
    support::{Failure, Order, order},
};

async fn impatient(database: &Fresh, patience: Duration) -> Pool {
    PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(patience)
        .connect(&database.url())
        .await
        .unwrap()
}

/// They share the failure of the one that went first: the last of them is not told after eight times
/// the pool's patience.
#[tokio::test]
async fn without_a_connection_all_are_told_when_the_first_one_is() {
    let database = Fresh::new().await;
    let pool = impatient(&database, Duration::from_secs(2)).await;
    let body = Body::new();
    let held = pool.acquire().await.unwrap();
    let begun = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..8 {
        let (pool, body) = (pool.clone(), body.clone());
        calls.spawn(async move { pay_now(&pool, order(1), &body).await });
    }
    for answer in calls.join_all().await {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
        assert_eq!(error.effect(), Effect::None);
        assert!(matches!(error.idem().retry(), Retry::Later(_)));
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
    drop(held);
    assert_eq!(pay_now(&pool, order(1), &body).await.unwrap().run, 1);
}

#[tokio::test]
async fn one_that_waits_is_not_told_in_progress_when_nothing_runs() {
    let database = Fresh::new().await;
    let pool = impatient(&database, Duration::from_secs(30)).await;
    let body = Body::new();
    let held = pool.acquire().await.unwrap();
    let first = tokio::spawn({
        let (pool, body) = (pool.clone(), body.clone());
        async move { prompt(&pool, order(1), &body).await }
    });
    tokio::task::yield_now().await;
    // Its budget ends before the pool's patience.
    let error = soon(&pool, order(1), &body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert_eq!(error.effect(), Effect::None);
    drop(held);
    assert_eq!(first.await.unwrap().unwrap(), 1);
}

#[idempotent(
    scope = "shared", shared_scope, key = "{order.no}", ttl = "1h", store = pool, tx = tx, wait = "400ms"
)]
async fn soon(pool: &Pool, order: Order, body: &Body) -> Result<usize, Failure> {
    write(tx, &order).await?;
    Ok(body.run().await)
}

#[idempotent(
    scope = "shared", shared_scope, key = "{order.no}", ttl = "1h", store = pool, tx = tx, wait = "60s"
)]
async fn patient(pool: &Pool, order: Order, body: &Body) -> Result<usize, Failure> {
    write(tx, &order).await?;
    Ok(body.run().await)
}

#[idempotent(scope = "shared", shared_scope, key = "{order.no}", ttl = "1h", store = pool, tx = tx, reject)]
async fn prompt(pool: &Pool, order: Order, body: &Body) -> Result<usize, Failure> {
    write(tx, &order).await?;
    Ok(body.run().await)
}

/// The one in front waits for a call of another process, whose payload nobody here knows.
#[tokio::test]
async fn one_that_does_not_wait_is_refused_at_once_behind_one_that_does() {
    let database = Fresh::new().await;
    let (elsewhere, pool) = (database.pool(1).await, database.pool(2).await);
    let body = Body::held();
    let spawn = |pool: &Pool| {
        let (pool, body) = (pool.clone(), body.clone());
        tokio::spawn(async move { patient(&pool, order(1), &body).await })
    };
    let first = spawn(&elsewhere);
    body.started(1).await;
    let waits = spawn(&pool);
    tokio::task::yield_now().await;
    for cents in [500, 501] {
        let refused = prompt(&pool, Order { no: 1, cents }, &body);
        let refused = tokio::time::timeout(Duration::from_secs(20), refused).await;
        let error = refused.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InProgress, "{cents}");
    }
    body.release();
    assert_eq!(first.await.unwrap().unwrap(), 1);
    assert_eq!(waits.await.unwrap().unwrap(), 1);
}

#[idempotent(key = "{no}", ttl = "1h", store = Records::default().pool(pool).begin_with(begin), tx = tx)]
async fn level(pool: &Pool, no: u64, begin: &'static str) -> Result<String, Failure> {
    let level = sqlx::query_scalar("SHOW transaction_isolation");
    Ok(level.fetch_one(&mut **tx).await?)
}

#[tokio::test]
async fn a_transaction_begins_as_it_is_told() {
    let database = Fresh::new().await;
    let pool = database.pool(1).await;
    for (no, name) in [(1, "serializable"), (2, "repeatable read")] {
        let begin: &str = match no {
            1 => "BEGIN ISOLATION LEVEL SERIALIZABLE",
            _ => "BEGIN ISOLATION LEVEL REPEATABLE READ",
        };
        assert_eq!(level(&pool, no, begin).await.unwrap(), name);
        assert_eq!(level(&pool, no, begin).await.unwrap(), name);
    }
    // A statement that begins nothing runs nothing.
    let error = level(&pool, 3, "SELECT 1").await.unwrap_err();
    assert_eq!(error.effect(), Effect::None);
    database.0.quiet().await;
}
