//! Calls inside calls, and two functions under one id.

use std::time::{Duration, Instant};

use idem::{ErrorKind, MemoryStore, idempotent};
use idem_test_support::Body;
use serde::{Deserialize, Serialize};
use sqlx::SqliteTransaction;

use crate::support::{Failure, Fresh, committed, write};

#[idempotent(key = "{no}", ttl = "1h", store = tx)]
async fn outer(tx: &mut SqliteTransaction<'_>, no: u64, body: &Body) -> Result<usize, Failure> {
    write(tx, "outer").await?;
    let inner = inner(tx, no, body).await?;
    Ok(inner * 10 + body.run().await)
}

#[idempotent(key = "{no}", ttl = "1h", store = tx)]
async fn inner(tx: &mut SqliteTransaction<'_>, no: u64, body: &Body) -> Result<usize, Failure> {
    write(tx, "inner").await?;
    Ok(body.run().await)
}

#[idempotent(key = "{no}", ttl = "1h", store = tx)]
async fn itself(tx: &mut SqliteTransaction<'_>, no: u64, body: &Body) -> Result<usize, Failure> {
    write(tx, "itself").await?;
    body.run().await;
    Box::pin(itself(tx, no, body)).await
}

#[idempotent(key = "{no}", ttl = "1h", store = tx)]
async fn ping(tx: &mut SqliteTransaction<'_>, no: u64, body: &Body) -> Result<usize, Failure> {
    body.run().await;
    Box::pin(pong(tx, no, body)).await
}

#[idempotent(key = "{no}", ttl = "1h", store = tx)]
async fn pong(tx: &mut SqliteTransaction<'_>, no: u64, body: &Body) -> Result<usize, Failure> {
    body.run().await;
    Box::pin(ping(tx, no, body)).await
}

#[tokio::test]
async fn ip_20_another_function_under_the_same_key_runs() {
    let (fresh, body) = (Fresh::new().await, Body::new());
    for _ in 0..2 {
        let answer = committed!(fresh, tx => outer(tx, 1, &body));
        assert_eq!(answer.unwrap(), 12);
    }
    // Its record is the inner function's own too.
    let answer = committed!(fresh, tx => inner(tx, 1, &body));
    assert_eq!(answer.unwrap(), 1);
    assert_eq!(fresh.effects().await, 2);
}

#[tokio::test]
async fn ip_20_a_call_inside_itself_is_refused_at_once() {
    let (fresh, begun) = (Fresh::new().await, Instant::now());
    let body = Body::new();
    let answer = committed!(fresh, tx => itself(tx, 1, &body));
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Reentrant);
    assert_eq!(body.runs(), 1);
    let body = Body::new();
    let answer = committed!(fresh, tx => ping(tx, 1, &body));
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Reentrant);
    assert_eq!(body.runs(), 2);
    assert_eq!(fresh.effects().await, 0);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[idempotent(key = "{no}", ttl = "1h", store = store)]
async fn itself_leased(store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
    body.run().await;
    Box::pin(itself_leased(store, no, body)).await
}

#[tokio::test]
async fn ip_20_with_a_lease_too() {
    let (store, body, begun) = (MemoryStore::new(), Body::new(), Instant::now());
    let error = itself_leased(&store, 1, &body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reentrant);
    assert_eq!(body.runs(), 1);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Receipt {
    no: u64,
    run: usize,
}

mod separate {
    use super::*;

    #[idempotent(key = "{id}", ttl = "1h", store = store)]
    pub(super) async fn pay(store: &MemoryStore, id: u64, body: &Body) -> Result<Receipt, Failure> {
        let run = body.run().await;
        Ok(Receipt { no: id, run })
    }

    #[idempotent(key = "{id}", ttl = "1h", store = store)]
    pub(super) async fn refund(store: &MemoryStore, id: u64, body: &Body) -> Result<u64, Failure> {
        Ok(body.run().await as u64)
    }
}

mod shared {
    use super::*;

    #[idempotent(key = "{id}", ttl = "1h", store = store, scope = "money", shared_scope)]
    pub(super) async fn pay(store: &MemoryStore, id: u64, body: &Body) -> Result<Receipt, Failure> {
        let run = body.run().await;
        Ok(Receipt { no: id, run })
    }

    #[idempotent(key = "{id}", ttl = "1h", store = store, scope = "money", shared_scope)]
    pub(super) async fn refund(store: &MemoryStore, id: u64, body: &Body) -> Result<u64, Failure> {
        Ok(body.run().await as u64)
    }
}

#[tokio::test]
async fn ip_12_one_id_for_two_functions_is_two_calls() {
    let (store, pay, refund) = (MemoryStore::new(), Body::new(), Body::new());
    let paid = separate::pay(&store, 7, &pay).await.unwrap();
    assert_eq!(separate::refund(&store, 7, &refund).await.unwrap(), 1);
    assert_eq!(separate::pay(&store, 7, &pay).await.unwrap(), paid);
    assert_eq!((pay.runs(), refund.runs()), (1, 1));
}

#[tokio::test]
async fn ip_12_with_one_scope_the_second_function_is_refused_before_its_body() {
    let (store, pay, refund) = (MemoryStore::new(), Body::new(), Body::new());
    let paid = shared::pay(&store, 7, &pay).await.unwrap();
    let error = shared::refund(&store, 7, &refund).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUndecodable);
    assert!(error.to_string().contains("money"), "{error}");
    assert_eq!(shared::pay(&store, 7, &pay).await.unwrap(), paid);
    assert_eq!((pay.runs(), refund.runs()), (1, 0));
}
