//! Duplicates of a running call, with a lease.

use std::time::{Duration, Instant};

use idem::{ErrorKind, MemoryStore, Retry, idempotent, observe};
use idem_test_support::{Body, poll::drop_after};
use tokio::task::JoinSet;

use crate::support::Failure;

#[idempotent(key = "{no}", ttl = "1h", store = store, wait = "2s", lease = "300ms")]
async fn waits(store: &MemoryStore, no: u64, cents: i64, body: &Body) -> Result<usize, Failure> {
    match body.run().await {
        run if cents < 0 && run == 1 => Err(Failure::Busy),
        run => Ok(run),
    }
}

#[idempotent(key = "{no}", ttl = "1h", store = store, reject)]
async fn refuses(store: &MemoryStore, no: u64, cents: i64, body: &Body) -> Result<usize, Failure> {
    Ok(body.run().await)
}

/// A call in a task of its own.
macro_rules! spawned {
    ($call:ident, $store:ident, $cents:expr, $body:ident) => {{
        let (store, body) = ($store.clone(), $body.clone());
        tokio::spawn(async move { observe($call(&store, 1, $cents, &body)).await })
    }};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ip_11_of_fifty_calls_at_once_one_runs_and_the_others_replay() {
    let (store, body) = (MemoryStore::new(), Body::held());
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let (store, body) = (store.clone(), body.clone());
        calls.spawn(async move { observe(waits(&store, 1, 5, &body)).await });
    }
    body.started(1).await;
    body.release();
    let mut replayed = 0;
    for (answer, seen) in calls.join_all().await {
        assert_eq!(answer.unwrap(), 1);
        replayed += usize::from(seen.replayed());
    }
    assert_eq!((body.runs(), replayed), (1, 49));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ip_11_or_are_refused_and_nothing_else() {
    let (store, body) = (MemoryStore::new(), Body::held());
    let first = spawned!(refuses, store, 5, body);
    body.started(1).await;
    let mut calls = JoinSet::new();
    for _ in 0..49 {
        let (store, body) = (store.clone(), body.clone());
        calls.spawn(async move { refuses(&store, 1, 5, &body).await });
    }
    for answer in calls.join_all().await {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InProgress);
        assert!(matches!(error.idem().retry(), Retry::Later(Some(_))));
    }
    body.release();
    assert_eq!(first.await.unwrap().0.unwrap(), 1);
    assert_eq!(body.runs(), 1);
}

#[tokio::test]
async fn ip_14_a_the_first_succeeds_and_the_waiter_replays() {
    let (store, body) = (MemoryStore::new(), Body::held());
    let first = spawned!(waits, store, 5, body);
    body.started(1).await;
    let second = spawned!(waits, store, 5, body);
    tokio::task::yield_now().await;
    body.release();
    let (answer, seen) = second.await.unwrap();
    assert_eq!(answer.unwrap(), 1);
    assert!(seen.replayed());
    assert_eq!(first.await.unwrap().0.unwrap(), 1);
}

#[tokio::test]
async fn ip_14_b_the_first_fails_and_the_waiter_runs() {
    let (store, body) = (MemoryStore::new(), Body::held());
    let first = spawned!(waits, store, -5, body);
    body.started(1).await;
    let second = spawned!(waits, store, -5, body);
    tokio::task::yield_now().await;
    body.release();
    assert!(matches!(first.await.unwrap().0, Err(Failure::Busy)));
    let (answer, seen) = second.await.unwrap();
    assert_eq!(answer.unwrap(), 2);
    assert!(!seen.replayed());
}

#[tokio::test]
async fn ip_14_c_the_first_takes_too_long() {
    let (store, body) = (MemoryStore::new(), Body::held());
    let first = spawned!(waits, store, 5, body);
    body.started(1).await;
    let begun = Instant::now();
    let error = waits(&store, 1, 5, &body).await.unwrap_err();
    let took = begun.elapsed();
    assert_eq!(error.kind(), ErrorKind::InProgress);
    assert!(took >= Duration::from_secs(2), "{took:?}");
    assert!(took < Duration::from_secs(6), "{took:?}");
    body.release();
    // Its lease was renewed all the time.
    assert_eq!(first.await.unwrap().0.unwrap(), 1);
    assert_eq!(body.runs(), 1);
}

#[tokio::test]
async fn ip_14_d_the_first_is_dropped_and_the_waiter_runs_when_its_lease_ends() {
    let (store, body) = (MemoryStore::new(), Body::held());
    let first = spawned!(waits, store, 5, body);
    body.started(1).await;
    let second = spawned!(waits, store, 5, body);
    tokio::task::yield_now().await;
    first.abort();
    body.started(2).await;
    body.release();
    let (answer, seen) = second.await.unwrap();
    assert_eq!(answer.unwrap(), 2);
    assert!(!seen.replayed());
}

#[tokio::test]
async fn ip_14_e_a_waiter_goes_away_and_leaves_nothing() {
    let (store, body) = (MemoryStore::new(), Body::held());
    let first = spawned!(waits, store, 5, body);
    body.started(1).await;
    for polls in 1..4 {
        let waiter = waits(&store, 1, 5, &body);
        assert!(drop_after(waiter, polls).await.is_none());
    }
    body.release();
    assert_eq!(first.await.unwrap().0.unwrap(), 1);
    assert_eq!((body.runs(), store.len()), (1, 1));
}

#[tokio::test]
async fn a8_another_payload_is_refused_while_the_first_call_runs_and_afterwards() {
    let (store, body) = (MemoryStore::new(), Body::held());
    let first = spawned!(waits, store, 5, body);
    body.started(1).await;
    let error = waits(&store, 1, 6, &body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FingerprintMismatch);
    body.release();
    assert_eq!(first.await.unwrap().0.unwrap(), 1);
    let error = waits(&store, 1, 6, &body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FingerprintMismatch);
    assert_eq!(error.idem().retry(), Retry::Never);
    assert_eq!(body.runs(), 1);
}
