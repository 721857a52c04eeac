//! The caller's transaction stays the caller's.

use std::time::Duration;

use idem_runtime::ErrorKind;
use idem_runtime::observe::observe;
use sqlx::mysql::MySqlTransaction;

use crate::database::Database;
use crate::service::{
    Body, Then, note, pay, pay_alone, pay_and_commit, pay_and_take_back, pay_or_be_refused,
};

#[tokio::test]
async fn a_repeat_answers_from_the_record() {
    let db = Database::fresh().await;
    let body = Body::default();
    let first = pay_and_commit(&db.pool, "1", 100, body.clone()).await;
    let (again, seen) = observe(pay_and_commit(&db.pool, "1", 100, body.clone())).await;
    assert_eq!(first.unwrap(), again.unwrap());
    assert!(seen.replayed());
    let other = pay_and_commit(&db.pool, "2", 100, body.clone()).await;
    other.unwrap();
    assert_eq!((body.runs(), db.orders().await), (2, 2));
}

#[tokio::test]
async fn the_moment_of_the_record_is_the_databases() {
    let db = Database::fresh().await;
    // A session elsewhere on earth, and a client that does not move it to UTC.
    let pool = db.pool(1, "SET time_zone = '+09:00'").await;
    pay_and_commit(&pool, "1", 100, Body::default())
        .await
        .unwrap();
    let (_, seen) = observe(pay_and_commit(&pool, "1", 100, Body::default())).await;
    let recorded = match seen.answered().unwrap() {
        idem_runtime::observe::Answered::Replay { recorded_at } => recorded_at.unwrap(),
        other => panic!("{other:?}"),
    };
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let age = u64::try_from(now.as_millis()).unwrap() - recorded.as_millis();
    assert!(age < 60_000, "{age} ms");
}

/// What a call can come to, besides which the caller does work of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Case {
    First,
    Replay,
    Mismatch,
    InProgress,
}

#[tokio::test]
async fn tx_11_the_caller_alone_commits_or_rolls_back() {
    for case in [Case::First, Case::Replay, Case::Mismatch, Case::InProgress] {
        for commits in [true, false] {
            let db = Database::fresh().await;
            if matches!(case, Case::Replay | Case::Mismatch) {
                pay_and_commit(&db.pool, "1", 100, Body::default())
                    .await
                    .unwrap();
            }
            let mut other = db.pool.begin().await.unwrap();
            if case == Case::InProgress {
                pay(&mut other, "1", 100, Body::default()).await.unwrap();
            }
            let mut tx = db.pool.begin().await.unwrap();
            note(&mut tx, "before").await;
            let asked = asked_of_the_server(&mut tx).await;
            let cents = if case == Case::Mismatch { 999 } else { 100 };
            let paid = pay_or_be_refused(&mut tx, "1", cents, Body::default()).await;
            assert_eq!(asked, asked_of_the_server(&mut tx).await, "{case:?}");
            match case {
                Case::First | Case::Replay => assert!(paid.is_ok(), "{case:?}"),
                Case::Mismatch => {
                    assert_eq!(paid.unwrap_err().kind(), ErrorKind::FingerprintMismatch);
                }
                Case::InProgress => assert_eq!(paid.unwrap_err().kind(), ErrorKind::InProgress),
            }
            note(&mut tx, "after").await;
            if commits {
                tx.commit().await.unwrap();
            } else {
                tx.rollback().await.unwrap();
            }
            other.rollback().await.unwrap();
            let lines = db.number("SELECT COUNT(*) FROM audit").await;
            assert_eq!(lines, if commits { 2 } else { 0 }, "{case:?}");
            let before = i64::from(matches!(case, Case::Replay | Case::Mismatch));
            let ours = i64::from(commits && case == Case::First);
            assert_eq!(db.orders().await, before + ours, "{case:?} {commits}");
            assert_eq!(db.records().await, before + ours, "{case:?} {commits}");
        }
    }
}

/// How often this session was told to begin, to commit, to roll back or to set a savepoint.
async fn asked_of_the_server(tx: &mut MySqlTransaction<'_>) -> Vec<(String, String)> {
    sqlx::query_as(
        "SHOW SESSION STATUS WHERE Variable_name IN ('Com_begin', 'Com_commit', 'Com_rollback', \
         'Com_savepoint', 'Com_rollback_to_savepoint', 'Com_release_savepoint')",
    )
    .fetch_all(&mut **tx)
    .await
    .unwrap()
}

#[tokio::test]
async fn tx_10_a_replay_leaves_the_transaction_usable() {
    let db = Database::fresh().await;
    let first = pay_and_commit(&db.pool, "1", 100, Body::default()).await;
    let mut tx = db.pool.begin().await.unwrap();
    note(&mut tx, "order").await;
    let again = pay(&mut tx, "1", 100, Body::default()).await;
    note(&mut tx, "audit").await;
    tx.commit().await.unwrap();
    assert_eq!(first.unwrap(), again.unwrap());
    assert_eq!(db.number("SELECT COUNT(*) FROM audit").await, 2);
    assert_eq!(db.orders().await, 1);
}

#[tokio::test]
async fn tx_05_a_call_takes_no_second_connection() {
    let db = Database::fresh().await;
    let pool = db.pool(2, "").await;
    let calls = (0..8).map(|n| {
        let pool = pool.clone();
        tokio::spawn(async move {
            let body = Body::default().then(Then::Pause(Duration::from_millis(20)));
            pay_and_commit(&pool, &n.to_string(), 100, body).await
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    assert_eq!(db.orders().await, 8);
    assert_eq!(pool.size(), 2);
}

#[tokio::test]
async fn a_body_that_fails_leaves_nothing_half_done_in_a_commit() {
    let db = Database::fresh().await;
    let body = Body::default();
    let mut tx = db.pool.begin().await.unwrap();
    let paid = pay(&mut tx, "1", 100, body.then(Then::Decline)).await;
    assert!(matches!(paid, Err(crate::service::PayError::Declined)));
    tx.commit().await.unwrap();
    assert_eq!(db.records().await, 0);
    pay_and_commit(&db.pool, "1", 100, body.clone())
        .await
        .unwrap();
    assert_eq!(body.runs(), 2);
}

#[tokio::test]
async fn in_a_transaction_of_the_frameworks_an_error_rolls_back() {
    let db = Database::fresh().await;
    let body = Body::default();
    let paid = pay_alone(&db.pool, "1", 100, body.then(Then::Decline)).await;
    assert!(paid.is_err());
    assert_eq!((db.orders().await, db.records().await), (0, 0));
    let first = pay_alone(&db.pool, "1", 100, body.clone()).await.unwrap();
    let again = pay_alone(&db.pool, "1", 100, body.clone()).await.unwrap();
    assert_eq!((first, body.runs(), db.orders().await), (again, 2, 1));
}

#[tokio::test]
async fn a_savepoint_that_is_rolled_back_takes_the_reservation_with_it() {
    let db = Database::fresh().await;
    let body = Body::default();
    let mut tx = db.pool.begin().await.unwrap();
    pay_and_take_back(&mut tx, "1", body.clone()).await.unwrap();
    let paid = pay(&mut tx, "1", 1, body.clone()).await.unwrap();
    let again = pay_and_take_back(&mut tx, "1", body.clone()).await;
    tx.commit().await.unwrap();
    assert_eq!((paid, body.runs()), (again.unwrap(), 2));
    assert_eq!((db.orders().await, db.records().await), (1, 1));
}

#[tokio::test]
async fn a_function_that_calls_itself_is_told_so() {
    let db = Database::fresh().await;
    let body = Body::default();
    pay_and_commit(&db.pool, "1", 100, body.then(Then::Again))
        .await
        .unwrap();
    assert_eq!(body.runs(), 1);
}
