//! Sessions that read what is not committed: no call is answered with it.

use std::time::Duration;

use idem_runtime::observe::{Answered, observe};
use idem_runtime::status::Status;
use idem_runtime::store::{mysql, sql::Records};

use crate::database::Database;
use crate::service::{Body, pay, pay_alone, pay_call};

const DIRTY: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED";

#[tokio::test]
async fn an_outcome_that_is_not_committed_is_not_an_answer() {
    let db = Database::fresh().await;
    let dirty = db.pool(3, DIRTY).await;
    let body = Body::default();
    // So many duplicates that the record is read before a transaction is begun.
    for _ in 0..40 {
        pay_alone(&dirty, "often", 100, body.clone()).await.unwrap();
    }
    let mut first = db.pool.begin().await.unwrap();
    let (_, seen) = observe(pay(&mut first, "1", 100, body.clone())).await;
    let id = seen.record_id().unwrap();
    assert_eq!(body.runs(), 2);
    let second = tokio::spawn({
        let (dirty, body) = (dirty.clone(), body.clone());
        async move { observe(pay_alone(&dirty, "1", 100, body)).await }
    });

    let records = Records::default();
    assert_eq!(records.lookup(&dirty, id).await.unwrap(), None);
    let asked = pay_call("1").unwrap();
    let status = asked.status(&dirty).await.unwrap();
    assert!(matches!(status, Status::InProgress(_)), "{status:?}");
    let mut tx = dirty.begin().await.unwrap();
    let status = asked.status(&mut tx).await.unwrap();
    assert!(!matches!(status, Status::Completed(_)), "{status:?}");
    tx.rollback().await.unwrap();

    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!second.is_finished());
    first.rollback().await.unwrap();
    let (paid, seen) = second.await.unwrap();
    paid.unwrap();
    assert_eq!(seen.answered(), Some(Answered::FirstRun));
    assert_eq!((body.runs(), db.orders().await), (3, 2));
    // What is committed is seen.
    assert!(records.lookup(&dirty, id).await.unwrap().is_some());
    let mut tx = dirty.begin().await.unwrap();
    let status = asked.status(&mut tx).await.unwrap();
    assert!(matches!(status, Status::Completed(_)), "{status:?}");
    tx.rollback().await.unwrap();
}

#[tokio::test]
async fn the_check_refuses_such_a_pool() {
    let db = Database::fresh().await;
    mysql::check(&db.pool).await.unwrap();
    let error = mysql::check(&db.pool(1, DIRTY).await).await.unwrap_err();
    assert!(error.to_string().contains("READ UNCOMMITTED"), "{error}");
}
