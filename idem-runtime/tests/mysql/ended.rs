//! The server or the body has ended the transaction: later statements would commit by themselves.

use std::sync::Arc;
use std::time::Duration;

use idem_runtime::{Effect, ErrorKind, Retry};
use idem_test_support::MariaDbServer;
use sqlx::Executor as _;
use sqlx::mysql::MySqlPool;
use tokio::sync::Barrier;
use tokio::task::JoinHandle;

use crate::database::Database;
use crate::service::{
    Body, PayError, Then, add, note, pay, pay_alone, pay_alone_again, pay_and_commit,
    pay_or_be_refused,
};

/// A heavy transaction that locks account 2, meets the body, and then wants account 1. The server
/// ends the lighter of two that wait for each other.
fn rival(pool: &MySqlPool, met: &Arc<Barrier>) -> JoinHandle<()> {
    let (pool, met) = (pool.clone(), Arc::clone(met));
    tokio::spawn(async move {
        let mut tx = pool.begin().await.unwrap();
        for _ in 0..20 {
            note(&mut tx, "weight").await;
        }
        add(&mut tx, 2).await.unwrap();
        met.wait().await;
        add(&mut tx, 1).await.unwrap();
        tx.commit().await.unwrap();
    })
}

fn lock(met: &Arc<Barrier>, swallow: bool) -> Then {
    Then::Lock {
        met: Arc::clone(met),
        swallow,
    }
}

#[tokio::test]
async fn a_deadlock_in_the_body_leaves_nothing_behind() {
    let db = Database::fresh().await;
    let met = Arc::new(Barrier::new(2));
    let rival = rival(&db.pool, &met);
    let body = Body::default();
    let mut tx = db.pool.begin().await.unwrap();
    note(&mut tx, "mine").await;
    let paid = pay(&mut tx, "1", 100, body.then(lock(&met, false))).await;
    let Err(PayError::Sql(error)) = paid else {
        panic!("the body's own error was expected: {paid:?}");
    };
    let code = error.into_database_error().unwrap();
    assert_eq!(code.code().as_deref(), Some("40001"));
    // The release found no transaction and did nothing; neither does this.
    tx.commit().await.unwrap();
    rival.await.unwrap();
    assert_eq!((db.orders().await, db.records().await), (0, 0));
    assert_eq!(
        db.number("SELECT COUNT(*) FROM audit WHERE line = 'mine'")
            .await,
        0
    );

    pay_and_commit(&db.pool, "1", 100, body.clone())
        .await
        .unwrap();
    assert_eq!((body.runs(), db.orders().await), (2, 1));
}

#[tokio::test]
async fn a_release_after_a_deadlock_does_not_wait_for_the_next_call_with_the_key() {
    let db = Database::fresh().await;
    let met = Arc::new(Barrier::new(2));
    let rival = rival(&db.pool, &met);
    let body = Body::default();
    let mut first = db.pool.begin().await.unwrap();
    let mut next = db.pool.begin().await.unwrap();
    // It waits until the deadlock has removed the first reservation, and then holds the key.
    let (paid, taken) = tokio::join!(
        async {
            let paid = pay(&mut first, "1", 100, body.then(lock(&met, false))).await;
            let begun = std::time::Instant::now();
            let again = pay_or_be_refused(&mut first, "1", 100, body.clone()).await;
            (paid, again, begun.elapsed())
        },
        async {
            while body.runs() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            pay(&mut next, "1", 100, body.clone()).await
        }
    );
    assert!(paid.0.is_err());
    assert!(paid.2 < Duration::from_millis(500));
    // Not even a call on the dead transaction writes anything.
    let again = paid.1.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::TransactionEnded);
    assert_eq!(again.idem().effect(), Effect::None);
    taken.unwrap();
    next.commit().await.unwrap();
    first.rollback().await.unwrap();
    rival.await.unwrap();
    assert_eq!((db.orders().await, db.records().await), (1, 1));
}

/// What the body does after the deadlock is committed by itself: it is not said to have had no effect,
/// and is not run again.
#[tokio::test]
async fn a_body_that_swallows_a_deadlock_cannot_be_recorded() {
    for own in [false, true] {
        let db = Database::fresh().await;
        let met = Arc::new(Barrier::new(2));
        let rival = rival(&db.pool, &met);
        let body = Body::default();
        let error = if own {
            let paid = pay_alone_again(&db.pool, "1", 100, body.then(lock(&met, true))).await;
            paid.unwrap_err()
        } else {
            let mut tx = db.pool.begin().await.unwrap();
            let paid = pay(&mut tx, "1", 100, body.then(lock(&met, true))).await;
            tx.rollback().await.unwrap();
            paid.unwrap_err()
        };
        assert_eq!(error.kind(), ErrorKind::TransactionEnded);
        assert_eq!(error.idem().effect(), Effect::Unknown);
        assert_eq!(error.idem().retry(), Retry::Never);
        rival.await.unwrap();
        assert_eq!((db.orders().await, db.records().await), (0, 0));
        let after = "SELECT COUNT(*) FROM audit WHERE line = 'after'";
        assert_eq!((body.runs(), db.number(after).await), (1, 1));
    }
}

/// Its row is there for all to see, and it still runs: they do not call themselves.
#[tokio::test]
async fn while_a_body_that_committed_still_runs_others_are_told_that_it_does() {
    let db = Database::fresh().await;
    let mut gate = db.connect().await;
    gate.execute("SELECT GET_LOCK('gate', 0)").await.unwrap();
    let body = Body::default();
    let running = tokio::spawn({
        let (pool, body) = (db.pool.clone(), body.clone());
        let ends = Then::Execute("COMMIT; SELECT GET_LOCK('gate', 60)");
        async move { pay_alone(&pool, "1", 100, body.then(ends)).await }
    });
    while db.records().await == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut tx = db.pool.begin().await.unwrap();
    let refused = pay_or_be_refused(&mut tx, "1", 100, body.clone()).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InProgress);
    tx.rollback().await.unwrap();
    gate.execute("DO RELEASE_LOCK('gate')").await.unwrap();
    let ended = running.await.unwrap().unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::TransactionEnded);
    let again = pay_and_commit(&db.pool, "1", 100, body.clone()).await;
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Abandoned);
    assert_eq!(body.runs(), 1);
}

#[tokio::test]
async fn in_a_transaction_of_the_frameworks_a_deadlock_is_tried_again_where_asked() {
    let db = Database::fresh().await;
    let met = Arc::new(Barrier::new(2));
    let first_rival = rival(&db.pool, &met);
    let body = Body::default();
    let paid = pay_alone(&db.pool, "1", 100, body.then(lock(&met, false))).await;
    assert!(matches!(paid, Err(PayError::Sql(_))));
    first_rival.await.unwrap();
    assert_eq!((db.orders().await, db.records().await), (0, 0));

    let second_rival = rival(&db.pool, &met);
    // The second try meets somebody who wants nothing.
    let meets_again = tokio::spawn({
        let met = Arc::clone(&met);
        async move {
            second_rival.await.unwrap();
            met.wait().await;
        }
    });
    let paid = pay_alone_again(&db.pool, "1", 100, body.then(lock(&met, false))).await;
    paid.unwrap();
    meets_again.await.unwrap();
    assert_eq!((body.runs(), db.orders().await), (3, 1));
}

#[tokio::test]
async fn a_body_that_commits_is_found_out_and_is_not_run_again() {
    for ends in ["COMMIT", "CREATE TABLE another (id INT)"] {
        let db = Database::fresh().await;
        let body = Body::default();
        let mut tx = db.pool.begin().await.unwrap();
        let paid = pay(&mut tx, "1", 100, body.then(Then::Execute(ends))).await;
        assert_eq!(
            paid.unwrap_err().kind(),
            ErrorKind::TransactionEnded,
            "{ends}"
        );
        tx.rollback().await.unwrap();
        // The effect is there, the reservation too: nobody may run it again unasked.
        assert_eq!(db.orders().await, 1, "{ends}");
        let again = pay_and_commit(&db.pool, "1", 100, body.clone()).await;
        assert_eq!(again.unwrap_err().kind(), ErrorKind::Abandoned, "{ends}");
        assert_eq!(body.runs(), 1, "{ends}");
    }
}

#[tokio::test]
async fn a_body_that_commits_and_fails_is_not_run_again_either() {
    let db = Database::fresh().await;
    let body = Body::default();
    let mut tx = db.pool.begin().await.unwrap();
    let ends = Then::Execute("COMMIT; SELECT no_such_column FROM orders");
    let paid = pay(&mut tx, "1", 100, body.then(ends)).await;
    assert!(matches!(paid, Err(PayError::Sql(_))));
    tx.rollback().await.unwrap();
    let again = pay_and_commit(&db.pool, "1", 100, body.clone()).await;
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Abandoned);
}

#[tokio::test]
async fn a_body_that_rolls_back_is_found_out() {
    let db = Database::fresh().await;
    let body = Body::default();
    let mut tx = db.pool.begin().await.unwrap();
    let paid = pay(&mut tx, "1", 100, body.then(Then::Execute("ROLLBACK"))).await;
    assert_eq!(paid.unwrap_err().kind(), ErrorKind::TransactionEnded);
    tx.commit().await.unwrap();
    assert_eq!((db.orders().await, db.records().await), (0, 0));
}

#[tokio::test]
async fn a_call_on_a_transaction_that_has_ended_runs_nothing() {
    let db = Database::fresh().await;
    let body = Body::default();
    for ended in ["COMMIT", "ROLLBACK", "CREATE TABLE another (id INT)"] {
        let mut tx = db.pool.begin().await.unwrap();
        (&mut *tx).execute(ended).await.unwrap();
        let paid = pay(&mut tx, "1", 100, body.clone()).await.unwrap_err();
        assert_eq!(paid.kind(), ErrorKind::TransactionEnded, "{ended}");
        assert_eq!(paid.idem().effect(), Effect::None, "{ended}");
        tx.rollback().await.unwrap();
    }
    assert_eq!((body.runs(), db.records().await), (0, 0));
}

#[tokio::test]
async fn where_a_time_out_ends_the_transaction_a_refused_duplicate_is_told_so() {
    let server = MariaDbServer::start(&["--innodb-rollback-on-timeout=1"]);
    let db = Database::fresh_on(&server.url()).await;
    let body = Body::default();
    let mut first = db.pool.begin().await.unwrap();
    pay(&mut first, "1", 100, body.clone()).await.unwrap();
    let mut second = db.pool.begin().await.unwrap();
    note(&mut second, "mine").await;
    let refused = pay(&mut second, "1", 100, body.clone()).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::RetryTransaction);
    second.rollback().await.unwrap();
    first.rollback().await.unwrap();
    assert_eq!((body.runs(), db.records().await), (1, 0));
    let refused = idem_runtime::store::mysql::check(&db.pool)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("innodb_rollback_on_timeout"));
}
