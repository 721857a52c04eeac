//! How many connections and statements calls use.

use std::time::{Duration, Instant};

use idem::{ErrorKind, idempotent};
use idem_test_support::Body;
use tokio::task::JoinSet;

use crate::{
    postgres::{
        calls::{effects, pay, write},
        db::{Fresh, Pool},
    },
    support::{Failure, order},
};

/// A function of these tests alone: how many of its calls are duplicates decides what it sends.
macro_rules! counted {
    ($name:ident) => {
        #[idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx)]
        async fn $name(pool: &Pool, no: u64, body: &Body) -> Result<usize, Failure> {
            write(tx, &order(no)).await?;
            Ok(body.run().await)
        }
    };
}

counted!(thousandfold);
counted!(first_runs);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b2_a_thousand_duplicates_use_one_connection() {
    let database = Fresh::new().await;
    let (proxy, pool) = database.proxied(5);
    let body = Body::held();
    let mut calls = JoinSet::new();
    for _ in 0..1000 {
        let (pool, body) = (pool.clone(), body.clone());
        calls.spawn(async move { thousandfold(&pool, 1, &body).await });
    }
    body.started(1).await;
    // All the others wait, or are not there yet: nothing but the first call is at the database.
    for _ in 0..2000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(proxy.accepted(), 1);
    body.release();
    for answer in calls.join_all().await {
        assert_eq!(answer.unwrap(), 1);
    }
    // Late ones find the record by themselves, one after another.
    assert!(proxy.accepted() <= 3, "{} connections", proxy.accepted());
    let statements = proxy.statements();
    let begins = statements.iter().filter(|sql| *sql == "BEGIN").count();
    assert!(begins <= 20, "{begins} transactions: {statements:?}");
    assert_eq!(effects(&pool, 1).await, 1);
}

#[tokio::test]
async fn a_first_run_takes_five_statements_on_one_connection() {
    let database = Fresh::new().await;
    let (proxy, pool) = database.proxied(1);
    let body = Body::new();
    // The first call on a pool also asks whether its sessions choose their schema.
    first_runs(&pool, 0, &body).await.unwrap();
    proxy.clear_log();
    first_runs(&pool, 1, &body).await.unwrap();
    let executed = proxy.executed();
    assert_eq!(executed.len(), 5, "{executed:?}");
    let words: Vec<_> = executed
        .iter()
        .map(|statement| {
            statement
                .text
                .split_whitespace()
                .take(3)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    assert_eq!(
        words,
        [
            "BEGIN",
            "INSERT INTO idem_record",
            "INSERT INTO effect",
            "UPDATE idem_record SET",
            "COMMIT"
        ]
    );
    assert_eq!(proxy.accepted(), 1);
    // The texts are static: a connection prepares them once.
    proxy.clear_log();
    first_runs(&pool, 2, &body).await.unwrap();
    assert_eq!(proxy.executed().len(), 5);
    assert!(proxy.prepared().is_empty(), "{:?}", proxy.prepared());
}

/// Another pool stands for another process: nothing is coalesced with it.
#[tokio::test]
async fn a9_waiting_for_another_process_holds_no_connection() {
    let database = Fresh::new().await;
    let (elsewhere, pool) = (database.pool(1).await, database.pool(1).await);
    let body = Body::held();
    let first = tokio::spawn({
        let body = body.clone();
        async move { pay(&elsewhere, order(1), &body).await }
    });
    body.started(1).await;
    let waiting = tokio::spawn({
        let (pool, body) = (pool.clone(), body.clone());
        async move { pay(&pool, order(1), &body).await }
    });
    let free = Body::new();
    let begun = Instant::now();
    for no in 10..30 {
        pay(&pool, order(no), &free).await.unwrap();
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(!waiting.is_finished());
    // Whenever one looks, no session but the first call's sits in a transaction for long.
    body.release();
    assert_eq!(waiting.await.unwrap().unwrap().run, 1);
    assert_eq!(first.await.unwrap().unwrap().run, 1);
    assert_eq!(body.runs(), 1);
}

#[idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx, wait = "3s")]
async fn pay_within_3s(pool: &Pool, no: u64, body: &Body) -> Result<usize, Failure> {
    write(tx, &order(no)).await?;
    Ok(body.run().await)
}

#[tokio::test]
async fn a9_a_wait_for_another_process_ends_with_its_budget() {
    let database = Fresh::new().await;
    let (elsewhere, pool) = (database.pool(1).await, database.pool(2).await);
    // Its statements are prepared: looking takes none of the budget.
    pay_within_3s(&pool, 2, &Body::new()).await.unwrap();
    let body = Body::held();
    let first = tokio::spawn({
        let body = body.clone();
        async move { pay_within_3s(&elsewhere, 1, &body).await }
    });
    body.started(1).await;
    let begun = Instant::now();
    let mut waiting = JoinSet::new();
    for _ in 0..5 {
        let (pool, body) = (pool.clone(), body.clone());
        waiting.spawn(async move { pay_within_3s(&pool, 1, &body).await });
    }
    for answer in waiting.join_all().await {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::InProgress);
    }
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(3), "{took:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    body.release();
    first.await.unwrap().unwrap();
}

#[idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx)]
async fn below(pool: &Pool, no: u64, body: &Body) -> Result<usize, Failure> {
    write(tx, &order(no)).await?;
    Ok(body.run().await)
}

#[idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx)]
async fn above(pool: &Pool, no: u64, body: &Body) -> Result<usize, Failure> {
    write(tx, &order(no)).await?;
    let below = below(pool, no, body).await?;
    Ok(below * 10 + body.run().await)
}

#[idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx)]
async fn counts_down(pool: &Pool, no: u64, body: &Body) -> Result<u64, Failure> {
    write(tx, &order(no)).await?;
    body.run().await;
    match no {
        0 => Ok(0),
        _ => Ok(no + Box::pin(counts_down(pool, no - 1, body)).await?),
    }
}

/// A transaction of its own takes a connection of its own.
#[tokio::test]
async fn ip_20_other_calls_inside_a_body_run_where_there_are_connections() {
    let database = Fresh::new().await;
    let pool = database.pool(5).await;
    let body = Body::new();
    assert_eq!(above(&pool, 1, &body).await.unwrap(), 12);
    assert_eq!(above(&pool, 1, &body).await.unwrap(), 12);
    assert_eq!(counts_down(&pool, 3, &body).await.unwrap(), 6);
    assert_eq!(counts_down(&pool, 2, &body).await.unwrap(), 3);
    assert_eq!(body.runs(), 6);
    database.0.quiet().await;
}

#[tokio::test]
async fn tx_05_calls_in_the_callers_transactions_need_no_further_connection() {
    #[idempotent(key = "{no}", ttl = "1h", store = tx)]
    async fn inside(
        tx: &mut sqlx::PgTransaction<'_>,
        no: u64,
        body: &Body,
    ) -> Result<usize, Failure> {
        write(tx, &order(no)).await?;
        Ok(body.run().await)
    }
    let database = Fresh::new().await;
    let (proxy, pool) = database.proxied(2);
    let body = Body::new();
    let mut calls = JoinSet::new();
    for no in 0..8 {
        let (pool, body) = (pool.clone(), body.clone());
        calls.spawn(async move {
            let mut tx = pool.begin().await.unwrap();
            inside(&mut tx, no, &body).await.unwrap();
            inside(&mut tx, no, &body).await.unwrap();
            tx.commit().await.unwrap();
        });
    }
    let all = tokio::time::timeout(Duration::from_secs(20), calls.join_all());
    assert_eq!(all.await.unwrap().len(), 8);
    assert_eq!(body.runs(), 8);
    assert!(proxy.accepted() <= 2);
}
