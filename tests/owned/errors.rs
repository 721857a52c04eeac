//! What becomes of a body that fails.

use idem::{Answered, Effect, ErrorKind, observe};
use idem_test_support::Body;
use tokio::task::JoinSet;

use super::{
    calls::{End, effects, pay, recorded, records, released},
    db::Fresh,
};
use crate::support::{Failure, Order, Receipt, order};

/// On a runtime of one thread nothing runs between the first answer and the second call, and that
/// one is refused at once if it finds the key taken: the roll-back must have been waited for.
#[tokio::test]
async fn tx_02_after_an_error_the_key_is_free_on_another_connection() {
    let database = Fresh::new().await;
    let (one, other) = (database.pool(1).await, database.pool(1).await);
    for (no, how) in [End::Busy, End::Declined].into_iter().enumerate() {
        let (no, body) = (no as u64, Body::new());
        released(&one, order(no), &body, how).await.unwrap_err();
        let second = released(&other, order(no), &body, End::Well).await.unwrap();
        assert_eq!(second.run, 2);
        assert_eq!(effects(&one, no).await, 1);
    }
}

#[tokio::test]
async fn ip_07_errors_are_released_unless_told_otherwise() {
    let database = Fresh::new().await;
    let pool = database.pool(2).await;
    let body = Body::new();
    for run in 1..=3 {
        let call = released(&pool, order(1), &body, End::Declined);
        let (answer, seen) = observe(call).await;
        assert!(matches!(answer, Err(Failure::Declined(why)) if why == "no money"));
        assert_eq!(seen.answered(), Some(Answered::FirstRun));
        assert_eq!(body.runs(), run);
    }
    assert_eq!(effects(&pool, 1).await, 0);
    assert_eq!(records(&pool).await, 0);
}

#[tokio::test]
async fn ip_07_a_final_error_is_recorded_without_the_writes_and_replayed() {
    let database = Fresh::new().await;
    let pool = database.pool(2).await;
    let body = Body::new();
    let call = || observe(recorded(&pool, order(1), &body, End::Declined));
    let (first, seen) = call().await;
    assert!(matches!(first, Err(Failure::Declined(_))));
    assert_eq!(seen.answered(), Some(Answered::FirstRun));
    assert_eq!(effects(&pool, 1).await, 0);
    assert_eq!(records(&pool).await, 1);

    let (second, seen) = call().await;
    assert!(matches!(second, Err(Failure::Declined(why)) if why == "no money"));
    assert!(matches!(
        seen.answered(),
        Some(Answered::Replay {
            recorded_at: Some(_)
        })
    ));
    assert_eq!(body.runs(), 1);
    // It would succeed now: a final error is final.
    let third = recorded(&pool, order(1), &body, End::Well).await;
    assert!(matches!(third, Err(Failure::Declined(_))));
    // Another payload is refused here too.
    let other = Order { no: 1, cents: 501 };
    let fourth = recorded(&pool, other, &body, End::Well).await.unwrap_err();
    assert_eq!(fourth.kind(), ErrorKind::FingerprintMismatch);
}

#[tokio::test]
async fn ip_07_errors_that_are_not_final_are_released_beside_final_ones() {
    let database = Fresh::new().await;
    let pool = database.pool(2).await;
    let body = Body::new();
    let first = recorded(&pool, order(1), &body, End::Busy).await;
    assert!(matches!(first, Err(Failure::Busy)));
    assert_eq!(records(&pool).await, 0);
    let second = recorded(&pool, order(1), &body, End::Well).await.unwrap();
    assert_eq!(second.run, 2);
    assert_eq!(effects(&pool, 1).await, 1);
}

#[tokio::test]
async fn ip_07_those_who_wait_get_a_final_error_too() {
    let database = Fresh::new().await;
    let pool = database.pool(2).await;
    let body = Body::held();
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let (pool, body) = (pool.clone(), body.clone());
        calls.spawn(async move {
            let call = recorded(&pool, order(1), &body, End::Declined);
            let (answer, seen) = observe(call).await;
            assert!(matches!(answer, Err(Failure::Declined(_))));
            seen.replayed()
        });
    }
    body.started(1).await;
    body.release();
    let replayed = calls.join_all().await;
    assert_eq!(replayed.iter().filter(|replayed| **replayed).count(), 19);
    assert_eq!(body.runs(), 1);
}

#[tokio::test]
async fn a_panic_rolls_back_and_the_next_call_runs() {
    let database = Fresh::new().await;
    let pool = database.pool(1).await;
    let body = Body::new();
    let first = tokio::spawn({
        let (pool, body) = (pool.clone(), body.clone());
        async move { recorded(&pool, order(1), &body, End::Panic).await }
    });
    assert!(first.await.unwrap_err().is_panic());
    let second = recorded(&pool, order(1), &body, End::Well).await.unwrap();
    assert_eq!(second.run, 2);
    assert_eq!(effects(&pool, 1).await, 1);
}

#[tokio::test]
async fn a_panic_wakes_those_who_wait() {
    let database = Fresh::new().await;
    let pool = database.pool(5).await;
    let body = Body::held();
    let first = tokio::spawn({
        let (pool, body) = (pool.clone(), body.clone());
        async move { recorded(&pool, order(1), &body, End::Panic).await }
    });
    body.started(1).await;
    let mut others = JoinSet::new();
    for _ in 0..20 {
        let (pool, body) = (pool.clone(), body.clone());
        others.spawn(async move { recorded(&pool, order(1), &body, End::Well).await });
    }
    tokio::task::yield_now().await;
    body.release();
    assert!(first.await.unwrap_err().is_panic());
    for answer in others.join_all().await {
        assert_eq!(answer.unwrap(), Receipt { no: 1, run: 2 });
    }
    assert_eq!(body.runs(), 2);
    assert_eq!(effects(&pool, 1).await, 1);
}

#[idem::idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx, reject)]
async fn rate(pool: &super::db::Pool, no: u64, body: &Body, value: f64) -> Result<f64, Failure> {
    super::calls::write(tx, &order(no)).await?;
    body.run().await;
    Ok(value)
}

#[tokio::test]
async fn ser_03_an_outcome_that_does_not_read_back_rolls_everything_back() {
    let database = Fresh::new().await;
    let (one, other) = (database.pool(1).await, database.pool(1).await);
    let body = Body::new();
    let error = rate(&one, 1, &body, f64::NAN).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeNotRecordable);
    assert_eq!(error.effect(), Effect::None);
    // Straight afterwards, on another connection: refused at once if the key were taken.
    let answer = rate(&other, 1, &body, f64::NAN).await.unwrap_err();
    assert_eq!(answer.kind(), ErrorKind::OutcomeNotRecordable);
    assert_eq!(body.runs(), 2);
    assert_eq!(effects(&one, 1).await, 0);
    assert_eq!(records(&one).await, 0);
}

#[tokio::test]
async fn an_error_of_the_call_is_not_recorded_as_the_answer() {
    let database = Fresh::new().await;
    let pool = database.pool(2).await;
    let body = Body::new();
    pay(&pool, order(1), &body).await.unwrap();
    let other = Order { no: 1, cents: 1 };
    let refused = pay(&pool, other, &body).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::FingerprintMismatch);
    assert_eq!(pay(&pool, order(1), &body).await.unwrap().run, 1);
}
