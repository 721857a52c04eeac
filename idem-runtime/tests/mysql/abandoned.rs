//! A reservation that was committed without an outcome: the database cannot refuse that here.

use std::time::Duration;

use idem_runtime::store::sql::Records;
use idem_runtime::{Effect, ErrorKind, Retry};

use crate::database::Database;
use crate::service::{Body, Then, pay, pay_alone, pay_and_commit};

const NEVER: Duration = Duration::from_secs(600);

/// Drops a call midway and commits all the same.
async fn abandon(db: &Database, body: &Body) {
    let mut tx = db.pool.begin().await.unwrap();
    let call = pay(&mut tx, "1", 100, body.then(Then::Pause(NEVER)));
    body.drop_in_pause(call).await;
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn it_is_reported_and_never_run_again() {
    let db = Database::fresh().await;
    let body = Body::default();
    abandon(&db, &body).await;
    assert_eq!((db.orders().await, db.records().await), (1, 1));
    for _ in 0..2 {
        let paid = pay_and_commit(&db.pool, "1", 100, body.clone()).await;
        let error = paid.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Abandoned);
        assert_eq!(error.idem().effect(), Effect::Unknown);
        assert_eq!(error.idem().retry(), Retry::Never);
        let paid = pay_alone(&db.pool, "1", 100, body.clone()).await;
        assert_eq!(paid.unwrap_err().kind(), ErrorKind::Abandoned);
    }
    assert_eq!(body.runs(), 1);
}

#[tokio::test]
async fn it_is_no_completed_record_and_is_purged_by_nobody() {
    let db = Database::fresh().await;
    let body = Body::default();
    abandon(&db, &body).await;
    let paid = pay_and_commit(&db.pool, "1", 100, body.clone()).await;
    let id = paid.unwrap_err().idem().record_id().unwrap();
    let records = Records::default();
    assert_eq!(records.lookup(&db.pool, id).await.unwrap(), None);
    assert_eq!(records.purge(&db.pool, 100).await.unwrap(), 0);

    assert!(records.forget(&db.pool, id).await.unwrap());
    assert!(!records.forget(&db.pool, id).await.unwrap());
    pay_and_commit(&db.pool, "1", 100, body.clone())
        .await
        .unwrap();
    assert_eq!(body.runs(), 2);
}

#[tokio::test]
async fn a_call_that_is_dropped_and_rolled_back_leaves_nothing() {
    let db = Database::fresh().await;
    let body = Body::default();
    let mut tx = db.pool.begin().await.unwrap();
    body.drop_in_pause(pay(&mut tx, "1", 100, body.then(Then::Pause(NEVER))))
        .await;
    tx.rollback().await.unwrap();
    assert_eq!((db.orders().await, db.records().await), (0, 0));
    body.drop_in_pause(pay_alone(&db.pool, "1", 100, body.then(Then::Pause(NEVER))))
        .await;
    let before = body.runs();
    pay_alone(&db.pool, "1", 100, body.clone()).await.unwrap();
    assert_eq!((body.runs(), db.orders().await), (before + 1, 1));
}

#[tokio::test]
async fn a_running_call_is_looked_up_without_waiting_for_it() {
    let db = Database::fresh().await;
    let mut tx = db.pool.begin().await.unwrap();
    let (_, seen) = idem_runtime::observe::observe(pay(&mut tx, "1", 100, Body::default())).await;
    let lookup = Records::default();
    let found = tokio::time::timeout(
        Duration::from_secs(5),
        lookup.lookup(&db.pool, seen.record_id().unwrap()),
    )
    .await;
    assert_eq!(found.unwrap().unwrap(), None);
    tx.commit().await.unwrap();
    let found = lookup.lookup(&db.pool, seen.record_id().unwrap()).await;
    assert!(found.unwrap().is_some());
}
