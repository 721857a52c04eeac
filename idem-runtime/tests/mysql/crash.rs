//! A process that is killed.

use std::time::Duration;

use idem_test_support::child::{Args, say};
use idem_test_support::mariadb;

use crate::database::Database;
use crate::service::{Body, Then, pay, pay_alone, pay_and_commit};

idem_test_support::child_roles!(is_killed);

/// Starts a child, kills it where it says `ready`, and calls again at once.
async fn killed(place: &str) {
    let db = Database::fresh().await;
    let mut child = child("is_killed").arg(db.url()).arg(place).spawn();
    child.wait_for("ready").await;
    if place != "commit" {
        // In the body, its row must be there.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    child.kill9();

    let begun = std::time::Instant::now();
    let body = Body::default();
    pay_and_commit(&db.pool, "1", 100, body.clone())
        .await
        .unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{place}");
    assert_eq!((body.runs(), db.orders().await), (1, 1), "{place}");
}

#[tokio::test]
async fn ip_06_in_the_body_leaves_nothing_and_the_retry_runs_at_once() {
    killed("body").await;
}

#[tokio::test]
async fn ip_06_in_the_body_of_a_transaction_of_the_frameworks_likewise() {
    killed("own body").await;
}

#[tokio::test]
async fn ip_06_between_body_and_commit_likewise() {
    killed("commit").await;
}

async fn is_killed(args: Args) {
    let pool = mariadb::pool(args.get(0), 10).await;
    let forever = Body::default().then(Then::Pause(Duration::from_secs(600)));
    match args.get(1) {
        "body" => {
            let mut tx = pool.begin().await.unwrap();
            say("ready");
            let _ = pay(&mut tx, "1", 100, forever).await;
        }
        "own body" => {
            say("ready");
            let _ = pay_alone(&pool, "1", 100, forever).await;
        }
        _ => {
            let mut tx = pool.begin().await.unwrap();
            pay(&mut tx, "1", 100, Body::default()).await.unwrap();
            say("ready");
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
    }
}
