//! A process that is killed.

use std::io::{BufRead as _, BufReader};
use std::time::Duration;

use crate::server::{Database, is_child};
use crate::service::{Body, Then, pay, pay_alone, pay_and_commit};

const CHILD: &str = "crash::the_process_that_is_killed";

/// Starts a child, kills it where it says `ready`, and calls again at once.
async fn killed(place: &str) {
    let db = Database::fresh().await;
    let mut child = db
        .child(CHILD)
        .env("IDEM_TEST_PLACE", place)
        .spawn()
        .unwrap();
    let told = BufReader::new(child.stdout.take().unwrap());
    let ready = told.lines().map(Result::unwrap).any(|line| line == "ready");
    assert!(ready, "{place}");
    if place != "commit" {
        // In the body, its row must be there.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();

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

#[tokio::test]
async fn the_process_that_is_killed() {
    if !is_child(CHILD) {
        return;
    }
    let db = Database::of_parent().await;
    let forever = Body::default().then(Then::Pause(Duration::from_secs(600)));
    match std::env::var("IDEM_TEST_PLACE").unwrap().as_str() {
        "body" => {
            let mut tx = db.pool.begin().await.unwrap();
            println!("\nready");
            let _ = pay(&mut tx, "1", 100, forever).await;
        }
        "own body" => {
            println!("\nready");
            let _ = pay_alone(&db.pool, "1", 100, forever).await;
        }
        _ => {
            let mut tx = db.pool.begin().await.unwrap();
            pay(&mut tx, "1", 100, Body::default()).await.unwrap();
            println!("\nready");
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
    }
}
