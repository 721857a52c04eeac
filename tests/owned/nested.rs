//! Calls inside the body of another one.

use std::time::{Duration, Instant};

use idem::{ErrorKind, idempotent, observe};
use idem_test_support::Body;
use sqlx::Transaction;

use super::{
    calls::{effects, write},
    db::{Db, Fresh, Pool},
};
use crate::support::{Failure, order};

#[idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx)]
async fn calls_itself(pool: &Pool, no: u64, body: &Body) -> Result<usize, Failure> {
    write(tx, &order(no)).await?;
    body.run().await;
    Box::pin(calls_itself(pool, no, body)).await
}

#[idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx)]
async fn ping(pool: &Pool, no: u64, body: &Body) -> Result<usize, Failure> {
    write(tx, &order(no)).await?;
    body.run().await;
    Box::pin(pong(pool, no, body)).await
}

async fn pong(pool: &Pool, no: u64, body: &Body) -> Result<usize, Failure> {
    Box::pin(ping(pool, no, body)).await
}

#[idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx)]
async fn outer(pool: &Pool, no: u64, body: &Body) -> Result<usize, Failure> {
    write(tx, &order(no)).await?;
    let inner = inner(tx, no, body).await?;
    Ok(inner * 10 + body.run().await)
}

#[idempotent(key = "{no}", ttl = "1h", store = tx)]
async fn inner(tx: &mut Transaction<'_, Db>, no: u64, body: &Body) -> Result<usize, Failure> {
    write(tx, &order(no)).await?;
    Ok(body.run().await)
}

#[tokio::test]
async fn ip_20_a_call_inside_itself_is_refused_at_once() {
    for connections in [1, 5] {
        let database = Fresh::new().await;
        let pool = database.pool(connections).await;
        let begun = Instant::now();
        for _ in 0..2 {
            let body = Body::new();
            let error = calls_itself(&pool, 1, &body).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Reentrant);
            assert_eq!(body.runs(), 1);
            let error = ping(&pool, 1, &body).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Reentrant);
            assert_eq!(body.runs(), 2);
        }
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert_eq!(effects(&pool, 1).await, 0, "both were rolled back");
    }
}

#[tokio::test]
async fn ip_20_another_function_in_the_same_transaction_runs_on_a_pool_of_one() {
    let database = Fresh::new().await;
    let pool = database.pool(1).await;
    let body = Body::new();
    let (answer, seen) = observe(outer(&pool, 1, &body)).await;
    assert_eq!(answer.unwrap(), 12);
    assert!(!seen.replayed());
    let (answer, seen) = observe(outer(&pool, 1, &body)).await;
    assert_eq!(answer.unwrap(), 12);
    assert!(seen.replayed());
    assert_eq!(body.runs(), 2);
    assert_eq!(effects(&pool, 1).await, 2);
}

#[idempotent(key = "{no}", ttl = "1h", wait = "60s", store = pool, tx = tx, fingerprint = none)]
async fn around(
    pool: &Pool,
    no: u64,
    other: Option<(u64, &tokio::sync::Barrier)>,
) -> Result<u64, Failure> {
    let _ = tx;
    let Some((other, met)) = other else {
        return Ok(no);
    };
    met.wait().await;
    Box::pin(around(pool, other, None)).await
}

/// Two calls, each of which makes the other one in its body: one is told at once, the other runs.
#[tokio::test]
async fn ip_20_of_two_calls_that_wait_for_each_other_one_is_told() {
    // Two bodies at the same time need two writers.
    if std::any::type_name::<Db>().contains("Sqlite") {
        return;
    }
    let database = Fresh::new().await;
    let pool = database.pool(5).await;
    let met = tokio::sync::Barrier::new(2);
    let begun = Instant::now();
    let answers = tokio::join!(
        around(&pool, 1, Some((2, &met))),
        around(&pool, 2, Some((1, &met)))
    );
    assert!(begun.elapsed() < Duration::from_secs(30));
    match answers {
        (Ok(answer), Err(told)) | (Err(told), Ok(answer)) => {
            assert!(answer == 1 || answer == 2);
            assert_eq!(told.kind(), ErrorKind::RetryTransaction, "{told}");
        }
        other => panic!("{other:?}"),
    }
}
