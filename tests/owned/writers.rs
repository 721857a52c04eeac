//! SQLite has one writer: a duplicate waits for the database, not for the key.

use std::time::Duration;

use idem::ErrorKind;
use idem_test_support::Body;

use crate::{
    sqlite::{
        calls::{effects, pay, pay_soon},
        db::{Fresh, Pool},
    },
    support::order,
};

/// A pool of another process, so to say, which does not wait long inside SQLite.
async fn impatient(database: &Fresh) -> Pool {
    let options = database.options().busy_timeout(Duration::from_millis(20));
    sqlx::sqlite::SqlitePoolOptions::new()
        .max_connections(1)
        .connect_with(options)
        .await
        .unwrap()
}

#[tokio::test]
async fn a9_a_duplicate_waits_longer_than_sqlite_does() {
    let database = Fresh::new().await;
    let (one, other) = (database.pool(1).await, impatient(&database).await);
    let body = Body::held();
    let first = tokio::spawn({
        let body = body.clone();
        async move { pay(&one, order(1), &body).await }
    });
    body.started(1).await;
    let second = tokio::spawn({
        let (other, body) = (other.clone(), body.clone());
        async move { pay(&other, order(1), &body).await }
    });
    // Longer than SQLite waits, several times over.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!second.is_finished());
    body.release();
    assert_eq!(first.await.unwrap().unwrap().run, 1);
    assert_eq!(second.await.unwrap().unwrap().run, 1);
    assert_eq!(effects(&other, 1).await, 1);
}

#[tokio::test]
async fn a9_and_not_longer_than_its_budget() {
    let database = Fresh::new().await;
    let (one, other) = (database.pool(1).await, impatient(&database).await);
    let body = Body::held();
    let first = tokio::spawn({
        let body = body.clone();
        async move { pay_soon(&one, order(1), &body).await }
    });
    body.started(1).await;
    let refused = tokio::time::timeout(Duration::from_secs(5), pay_soon(&other, order(1), &body));
    let error = refused.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RetryTransaction);
    body.release();
    first.await.unwrap().unwrap();
    assert_eq!(body.runs(), 1);
}
