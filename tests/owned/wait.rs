//! What a duplicate of a running call does.

use std::time::{Duration, Instant};

use idem::{Answered, Effect, ErrorKind, Retry, observe};
use idem_test_support::Body;

use super::{
    calls::{effects, pay, pay_now, pay_soon},
    db::Fresh,
};
use crate::support::{Order, Receipt, order};

#[tokio::test]
async fn ip_14_a_duplicate_waits_and_replays() {
    let database = Fresh::new().await;
    let pool = database.pool(2).await;
    let body = Body::held();
    let first = tokio::spawn({
        let (pool, body) = (pool.clone(), body.clone());
        async move { pay(&pool, order(1), &body).await }
    });
    body.started(1).await;
    let second = tokio::spawn({
        let (pool, body) = (pool.clone(), body.clone());
        async move { observe(pay(&pool, order(1), &body)).await }
    });
    tokio::task::yield_now().await;
    body.release();
    let (answer, seen) = second.await.unwrap();
    assert_eq!(answer.unwrap(), Receipt { no: 1, run: 1 });
    // Handed on inside the process, where the time of recording is not known.
    assert_eq!(
        seen.answered(),
        Some(Answered::Replay { recorded_at: None })
    );
    assert_eq!(first.await.unwrap().unwrap().run, 1);
    assert_eq!(body.runs(), 1);
}

#[tokio::test]
async fn ip_14_a_duplicate_runs_when_the_first_fails() {
    let database = Fresh::new().await;
    let pool = database.pool(2).await;
    let (failing, body) = (Body::held(), Body::new());
    #[idem::idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx)]
    async fn fails_once(
        pool: &super::db::Pool,
        no: u64,
        failing: &Body,
        body: &Body,
    ) -> Result<usize, crate::support::Failure> {
        super::calls::write(tx, &order(no)).await?;
        if failing.run().await == 1 {
            return Err(crate::support::Failure::Busy);
        }
        Ok(body.run().await)
    }
    let call = || {
        let (pool, failing, body) = (pool.clone(), failing.clone(), body.clone());
        async move { fails_once(&pool, 1, &failing, &body).await }
    };
    let first = tokio::spawn(call());
    failing.started(1).await;
    let second = tokio::spawn(call());
    tokio::task::yield_now().await;
    failing.release();
    assert!(first.await.unwrap().is_err());
    assert_eq!(second.await.unwrap().unwrap(), 1);
    assert_eq!(effects(&pool, 1).await, 1);
}

#[tokio::test]
async fn ip_14_a_wait_ends_with_its_budget() {
    let database = Fresh::new().await;
    let pool = database.pool(2).await;
    let body = Body::held();
    let first = tokio::spawn({
        let (pool, body) = (pool.clone(), body.clone());
        async move { pay_soon(&pool, order(1), &body).await }
    });
    body.started(1).await;
    let begun = Instant::now();
    let error = pay_soon(&pool, order(1), &body).await.unwrap_err();
    let took = begun.elapsed();
    assert_eq!(error.kind(), ErrorKind::InProgress);
    assert_eq!(error.effect(), Effect::None);
    assert!(matches!(error.idem().retry(), Retry::Later(Some(_))));
    assert!(took >= Duration::from_millis(400), "{took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    body.release();
    assert_eq!(first.await.unwrap().unwrap().run, 1);
    assert_eq!(body.runs(), 1);
}

#[tokio::test]
async fn a9_a_duplicate_is_refused_at_once_where_it_does_not_wait() {
    let database = Fresh::new().await;
    let pool = database.pool(2).await;
    let body = Body::held();
    let first = tokio::spawn({
        let (pool, body) = (pool.clone(), body.clone());
        async move { pay_now(&pool, order(1), &body).await }
    });
    body.started(1).await;
    let call = tokio::time::timeout(
        Duration::from_secs(5),
        observe(pay_now(&pool, order(1), &body)),
    );
    let (answer, seen) = call.await.unwrap();
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InProgress);
    assert!(matches!(error.idem().retry(), Retry::Later(Some(_))));
    assert_eq!(seen.answered(), Some(Answered::Refused));
    body.release();
    first.await.unwrap().unwrap();
    assert_eq!(pay_now(&pool, order(1), &body).await.unwrap().run, 1);
}

/// Refusing duplicates is about calls that run: one that is only being answered is no reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a9_many_repeats_of_a_finished_call_are_all_answered() {
    let database = Fresh::new().await;
    let pool = database.pool(3).await;
    let body = Body::new();
    pay_now(&pool, order(1), &body).await.unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (pool, body) = (pool.clone(), body.clone());
        calls.spawn(async move { pay_now(&pool, order(1), &body).await });
    }
    for answer in calls.join_all().await {
        assert_eq!(answer.unwrap(), Receipt { no: 1, run: 1 });
    }
}

#[tokio::test]
async fn a8_another_payload_is_refused_while_the_first_call_runs_and_afterwards() {
    let database = Fresh::new().await;
    let pool = database.pool(2).await;
    let body = Body::held();
    let first = tokio::spawn({
        let (pool, body) = (pool.clone(), body.clone());
        async move { pay(&pool, order(1), &body).await }
    });
    body.started(1).await;
    let other = || Order { no: 1, cents: 501 };
    let refused = tokio::time::timeout(Duration::from_secs(5), pay(&pool, other(), &body));
    let error = refused.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FingerprintMismatch);
    body.release();
    first.await.unwrap().unwrap();
    let error = pay(&pool, other(), &body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FingerprintMismatch);
    assert_eq!(error.effect(), Effect::None);
    assert_eq!(error.idem().retry(), Retry::Never);
    assert_eq!(body.runs(), 1);
    assert_eq!(effects(&pool, 1).await, 1);
}
