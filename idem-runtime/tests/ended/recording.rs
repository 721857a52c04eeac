//! The caller goes while the outcome is being recorded, and the store is out of reach.

use std::sync::Arc;

use idem_runtime::store::redis::RedisStore;
use idem_test_support::RedisServer;

use super::stores::on_every_store;
use super::*;

#[idempotent(
    crate = ::idem_runtime, key = "{no}", ttl = "1h", store = store, lease = "1s", wait = "20s",
    scope = "ended.answers",
)]
async fn answers<S: Store>(store: &S, no: u64, body: &Body) -> Result<usize, Failure> {
    Ok(body.run().await)
}

/// Aborted a moment after the body's end, at moments that differ.
async fn a_caller_that_goes_after_the_bodys_end_loses_nothing<S: Store>(store: S) {
    let calls = (0..20).map(|no| {
        let store = store.clone();
        tokio::spawn(async move {
            let body = Arc::new(Body::held());
            let task = tokio::spawn({
                let (store, body) = (store.clone(), Arc::clone(&body));
                async move { answers(&store, no, &body).await }
            });
            body.started(1).await;
            body.release();
            tokio::time::sleep(Duration::from_micros(150 * no)).await;
            task.abort();
            let _ = task.await;
            let ended = body.runs();
            tokio::time::sleep(LEASE * 3 / 2).await;
            let answer = answers(&store, no, &body).await.unwrap();
            (ended, answer, body.runs())
        })
    });
    for call in calls.collect::<Vec<_>>() {
        let (ended, answer, runs) = call.await.unwrap();
        // What was aborted inside the body may run again; what has come to its end may not. Which of the
        // two it was, the answer says: it is the number of the run.
        assert_eq!(answer, runs, "{ended}");
    }
}

on_every_store! {
    a_caller_that_goes_after_the_bodys_end_loses_nothing,
}

/// A real server that stands still from the body's end on, for longer than the lease, while the caller
/// is aborted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_stands_still_at_the_bodys_end_costs_no_second_run() {
    let server = RedisServer::start(&[]);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let body = Arc::new(Body::held());
    let task = tokio::spawn({
        let (store, body) = (store.clone(), Arc::clone(&body));
        async move { answers(&store, 7, &body).await }
    });
    body.started(1).await;
    server.sigstop();
    body.release();
    tokio::time::sleep(Duration::from_millis(100)).await;
    task.abort();
    let _ = task.await;
    tokio::time::sleep(LEASE * 2).await;
    server.sigcont();
    tokio::time::sleep(LEASE).await;
    let answer = answers(&store, 7, &body).await.unwrap();
    assert_eq!((answer, body.runs()), (1, 1));
}

/// The first caller is told the truth, keeps its value, and a repeat as told by nobody runs nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_gone_at_the_bodys_end_and_comes_back_costs_no_second_run() {
    let mut server = RedisServer::start(&[]);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let body = Arc::new(Body::held());
    let task = tokio::spawn({
        let (store, body) = (store.clone(), Arc::clone(&body));
        async move { answers(&store, 7, &body).await }
    });
    body.started(1).await;
    server.kill9();
    body.release();
    let lost = task.await.unwrap().unwrap_err();
    assert_eq!(lost.idem().kind(), ErrorKind::EffectDoneNotRecorded);
    assert_eq!(lost.idem().retry(), Retry::Never);
    assert_eq!(lost.idem().unrecorded::<usize>(), Some(1));
    // It comes back empty: the reservation is gone as well.
    server.restart();
    let answer = answers(&store, 7, &body).await.unwrap();
    assert_eq!((answer, body.runs()), (1, 1));
}
