//! Commits whose answer is lost.

use std::time::{Duration, Instant};

use idem::{Answered, Effect, ErrorKind, Retry, observe};
use idem_test_support::{
    Body,
    proxy::{Direction, Fault},
};

use crate::{
    postgres::{
        calls::{End, effects, pay, recorded, records},
        db::Fresh,
    },
    support::{Failure, order},
};

#[tokio::test]
async fn a_commit_that_held_is_answered_though_its_answer_is_lost() {
    let database = Fresh::new().await;
    let (proxy, pool) = database.proxied(2);
    let body = Body::new();
    let lost = proxy.on("COMMIT", Fault::CutAnswer);
    let (answer, seen) = observe(pay(&pool, order(1), &body)).await;
    assert!(lost.fired());
    assert_eq!(answer.unwrap().run, 1);
    assert_eq!(seen.answered(), Some(Answered::FirstRun));
    assert_eq!(effects(&pool, 1).await, 1);
    // Looking it up left nothing behind: neither a row of its own nor a lock.
    assert_eq!(records(&pool).await, 1);
    database.0.quiet().await;
    let (answer, seen) = observe(pay(&pool, order(1), &body)).await;
    assert_eq!(answer.unwrap().run, 1);
    assert!(seen.replayed());
}

#[tokio::test]
async fn those_who_wait_get_the_answer_of_a_commit_that_was_looked_up() {
    let database = Fresh::new().await;
    let (proxy, pool) = database.proxied(3);
    let body = Body::held();
    let lost = proxy.on("COMMIT", Fault::CutAnswer);
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (pool, body) = (pool.clone(), body.clone());
        calls.spawn(async move { pay(&pool, order(1), &body).await });
    }
    body.started(1).await;
    body.release();
    for answer in calls.join_all().await {
        assert_eq!(answer.unwrap().run, 1);
    }
    assert!(lost.fired());
    assert_eq!(effects(&pool, 1).await, 1);
}

#[tokio::test]
async fn a_commit_that_did_not_arrive_has_no_effect() {
    let database = Fresh::new().await;
    let (proxy, pool) = database.proxied(2);
    let body = Body::new();
    let lost = proxy.on("COMMIT", Fault::CutBefore);
    let error = pay(&pool, order(1), &body).await.unwrap_err();
    assert!(lost.fired());
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert_eq!(error.effect(), Effect::None);
    assert!(matches!(error.idem().retry(), Retry::Later(_)));
    assert_eq!(effects(&pool, 1).await, 0);
    assert_eq!(records(&pool).await, 0);
    assert_eq!(pay(&pool, order(1), &body).await.unwrap().run, 2);
    assert_eq!(effects(&pool, 1).await, 1);
}

#[tokio::test]
async fn those_who_wait_do_not_get_the_answer_of_a_commit_that_did_not_arrive() {
    let database = Fresh::new().await;
    let (proxy, pool) = database.proxied(3);
    let body = Body::held();
    let lost = proxy.on("COMMIT", Fault::CutBefore);
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (pool, body) = (pool.clone(), body.clone());
        calls.spawn(async move { pay(&pool, order(1), &body).await });
    }
    body.started(1).await;
    body.release();
    let (mut answers, mut errors) = (Vec::new(), Vec::new());
    for answer in calls.join_all().await {
        match answer {
            Ok(receipt) => answers.push(receipt.run),
            Err(error) => errors.push((error.kind(), error.effect())),
        }
    }
    assert!(lost.fired());
    assert_eq!(errors, [(ErrorKind::StoreUnavailable, Effect::None)]);
    assert_eq!(answers, [2; 9]);
    assert_eq!(effects(&pool, 1).await, 1);
}

/// What another process has completed meanwhile does not prove that this commit has held.
#[tokio::test]
async fn a_record_of_another_process_is_not_taken_for_the_lost_commit() {
    let database = Fresh::new().await;
    let (proxy, pool) = database.proxied(2);
    let body = Body::held();
    let call = tokio::spawn({
        let (pool, body) = (pool.clone(), body.clone());
        async move { pay(&pool, order(1), &body).await }
    });
    body.started(1).await;
    let lost = proxy.on("COMMIT", Fault::CutBefore);
    // The look-up begins, and is kept back.
    let kept_back = proxy.on("BEGIN", Fault::HoldBefore);
    body.release();
    // Another pool stands for another process. It gets the key once the server has given it up.
    let elsewhere = database.pool(1).await;
    assert_eq!(pay(&elsewhere, order(1), &body).await.unwrap().run, 2);
    assert!(lost.fired());
    assert!(!call.is_finished());
    kept_back.release();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert_eq!(error.effect(), Effect::None);
    assert_eq!(pay(&pool, order(1), &body).await.unwrap().run, 2);
    assert_eq!(effects(&pool, 1).await, 1);
}

/// The session, with its locks, lives on in the server when the network is gone: what becomes of the
/// commit is known only after that.
#[tokio::test]
async fn a_commit_whose_session_lives_on_is_looked_up_until_it_is_decided() {
    let database = Fresh::new().await;
    let (proxy, pool) = database.proxied(2);
    let body = Body::new();
    let kept_back = proxy.on("COMMIT", Fault::HoldBefore);
    let call = tokio::spawn({
        let (pool, body) = (pool.clone(), body.clone());
        async move { pay(&pool, order(1), &body).await }
    });
    while database.0.idle_in_transaction().await == 0 || body.runs() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The last statement before the commit is the one that records the outcome.
    while !proxy
        .statements()
        .iter()
        .any(|sql| sql.starts_with("UPDATE"))
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    proxy.cut_clients();
    // It asks, and is not told while the session holds the key.
    while !proxy
        .executed()
        .iter()
        .any(|statement| statement.connection > 1 && statement.text.starts_with("INSERT"))
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(!call.is_finished());
    // The server gives the session up.
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE datname = current_database() AND state = 'idle in transaction' \
               AND query LIKE 'UPDATE%'";
    sqlx::query(end)
        .execute(&database.pool(1).await)
        .await
        .unwrap();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert_eq!(error.effect(), Effect::None);
    kept_back.release();
    assert_eq!(pay(&pool, order(1), &body).await.unwrap().run, 2);
    assert_eq!(effects(&pool, 1).await, 1);
}

#[tokio::test]
async fn a_commit_is_unknown_when_the_database_cannot_be_reached_any_more() {
    let database = Fresh::new().await;
    let (proxy, pool) = database.proxied(2);
    let body = Body::new();
    let lost = proxy.on("COMMIT", Fault::CutAnswer);
    // From the cut on nothing connects.
    proxy.refuse(false);
    let call = tokio::spawn({
        let (pool, body) = (pool.clone(), body.clone());
        async move { pay(&pool, order(1), &body).await }
    });
    body.started(1).await;
    proxy.refuse(true);
    let error = call.await.unwrap().unwrap_err();
    assert!(lost.fired());
    assert_eq!(error.kind(), ErrorKind::CommitUnknown);
    assert_eq!(error.effect(), Effect::Unknown);
    assert!(matches!(error.idem().retry(), Retry::Later(_)));
    proxy.heal();
    let (answer, seen) = observe(pay(&pool, order(1), &body)).await;
    assert_eq!(answer.unwrap().run, 1);
    assert!(seen.replayed());
    assert_eq!(effects(&pool, 1).await, 1);
}

/// New connections are accepted and never answered: the look-up must not hang with them.
#[tokio::test]
async fn a_commit_is_unknown_when_the_database_becomes_a_black_hole() {
    let database = Fresh::new().await;
    let (proxy, pool) = database.proxied(2);
    let body = Body::new();
    let kept_back = proxy.on("COMMIT", Fault::HoldAnswer);
    let begun = Instant::now();
    let call = tokio::spawn({
        let (pool, body) = (pool.clone(), body.clone());
        async move { pay(&pool, order(1), &body).await }
    });
    kept_back.wait().await;
    proxy.hold(Direction::ToServer);
    proxy.cut_clients();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CommitUnknown);
    assert_eq!(error.effect(), Effect::Unknown);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    proxy.heal();
    let (answer, seen) = observe(pay(&pool, order(1), &body)).await;
    assert_eq!(answer.unwrap().run, 1);
    assert!(seen.replayed());
    assert_eq!(effects(&pool, 1).await, 1);
}

#[tokio::test]
async fn tx_06_a_call_dropped_during_its_commit_replays() {
    let database = Fresh::new().await;
    let (proxy, pool) = database.proxied(3);
    let body = Body::new();
    let kept_back = proxy.on("COMMIT", Fault::HoldAnswer);
    let call = || {
        let (pool, body) = (pool.clone(), body.clone());
        async move { observe(pay(&pool, order(1), &body)).await }
    };
    let first = tokio::spawn(call());
    kept_back.wait().await;
    let second = tokio::spawn(call());
    tokio::task::yield_now().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    // The one that waited finds out for itself, while the first one's answer is still under way.
    let (answer, seen) = second.await.unwrap();
    assert_eq!(answer.unwrap().run, 1);
    assert!(seen.replayed());
    kept_back.release();
    assert_eq!(body.runs(), 1);
    assert_eq!(effects(&pool, 1).await, 1);
    database.0.quiet().await;
}

/// The error had no effect, so a call that cannot record it still answers with it.
#[tokio::test]
async fn a_final_error_that_cannot_be_recorded_is_answered_all_the_same() {
    let database = Fresh::new().await;
    let (proxy, pool) = database.proxied(2);
    let body = Body::new();
    let lost = proxy.on("COMMIT", Fault::CutBefore);
    let first = recorded(&pool, order(1), &body, End::Declined).await;
    assert!(matches!(first, Err(Failure::Declined(_))));
    assert!(lost.fired());
    assert_eq!(effects(&pool, 1).await, 0);
    let second = recorded(&pool, order(1), &body, End::Well).await.unwrap();
    assert_eq!(second.run, 2);
}
