//! The answer to a `COMMIT` is lost, in a transaction of the framework's own.

use idem_runtime::{Effect, ErrorKind};
use idem_test_support::proxy::Fault;

use crate::database::Database;
use crate::service::{Body, pay_alone};

#[tokio::test]
async fn a_commit_that_held_is_answered() {
    let db = Database::fresh().await;
    let proxy = db.proxy();
    let pool = db.pool_through(&proxy, 2);
    let lost = proxy.on("COMMIT", Fault::CutAnswer);
    let body = Body::default();
    let paid = pay_alone(&pool, "1", 100, body.clone()).await.unwrap();
    assert!(lost.fired());
    let again = pay_alone(&pool, "1", 100, body.clone()).await.unwrap();
    assert_eq!((paid, body.runs(), db.orders().await), (again, 1, 1));
}

#[tokio::test]
async fn a_commit_that_did_not_hold_is_no_effect_and_the_next_call_runs() {
    let db = Database::fresh().await;
    let proxy = db.proxy();
    let pool = db.pool_through(&proxy, 2);
    let never_ran = proxy.on("COMMIT", Fault::CutBefore);
    let body = Body::default();
    let lost = pay_alone(&pool, "1", 100, body.clone()).await.unwrap_err();
    assert!(never_ran.fired());
    assert_eq!(lost.kind(), ErrorKind::StoreUnavailable);
    assert_eq!(lost.idem().effect(), Effect::None);
    assert_eq!((db.orders().await, db.records().await), (0, 0));
    pay_alone(&pool, "1", 100, body.clone()).await.unwrap();
    assert_eq!((body.runs(), db.orders().await), (2, 1));
}
