//! Calls that are dropped while a transaction begins.

use std::time::Duration;

use idem::idempotent;
use idem_test_support::{
    Body,
    poll::drop_after_time,
    proxy::{Direction, Fault},
};
use sqlx::Connection;

use crate::{
    postgres::{
        calls::{effects, pay, write},
        db::{Fresh, Pool},
    },
    support::{Failure, order},
};

/// Times from 0 to 10 ms without order.
fn times() -> impl Iterator<Item = Duration> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Duration::from_micros(state % 10_000)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tx_01_dropped_calls_leave_no_connection_inside_a_transaction() {
    let database = Fresh::new().await;
    let (proxy, pool) = database.proxied(3);
    let body = Body::new();
    // Connections and statements are prepared, so that the times fall into the protocol.
    pay(&pool, order(0), &body).await.unwrap();
    proxy.delay(Direction::ToServer, Duration::from_millis(2));
    proxy.delay(Direction::ToClient, Duration::from_millis(1));
    let mut calls = tokio::task::JoinSet::new();
    let mut dropped = 0;
    for (no, time) in (1..=500).zip(times()) {
        let (pool, body) = (pool.clone(), body.clone());
        calls.spawn(async move { drop_after_time(pay(&pool, order(no), &body), time).await });
        if calls.len() == 4 {
            let answer = calls.join_next().await.unwrap().unwrap();
            dropped += usize::from(answer.is_none());
        }
    }
    while let Some(answer) = calls.join_next().await {
        if let Some(answer) = answer.unwrap() {
            answer.unwrap();
        }
    }
    assert!(dropped > 100, "only {dropped} calls were dropped");
    proxy.heal();

    // Once all connections are back, and before the next transaction on one would end a forgotten one.
    while pool.num_idle() < pool.size() as usize {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    database.0.quiet().await;
    assert_eq!(database.0.idle_in_transaction().await, 0);

    // A hundred calls, and statements outside any transaction, on the same connections: each is seen
    // at once by a session that is not one of them.
    let mut witness = database.0.connect().await;
    for no in 1000..1100 {
        pay(&pool, order(no), &body).await.unwrap();
        sqlx::query("INSERT INTO effect (no, cents) VALUES ($1, 0)")
            .bind(no as i64)
            .execute(&pool)
            .await
            .unwrap();
        let seen: i64 = sqlx::query_scalar("SELECT count(*) FROM effect WHERE no = $1")
            .bind(no as i64)
            .fetch_one(&mut witness)
            .await
            .unwrap();
        assert_eq!(seen, 2);
    }
    witness.close().await.ok();

    // Whatever became of the dropped ones: each is there once at most, and now once.
    for no in 1..=500 {
        pay(&pool, order(no), &body).await.unwrap();
    }
    let effects: (i64, i64) = sqlx::query_as(
        "SELECT count(*), count(DISTINCT no) FROM effect WHERE no BETWEEN 1 AND 500",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(effects, (500, 500));
}

/// Not called by other tests, and so without a look at the record before it begins.
#[idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx)]
async fn only_first_runs(pool: &Pool, no: u64, body: &Body) -> Result<usize, Failure> {
    write(tx, &order(no)).await?;
    Ok(body.run().await)
}

#[tokio::test]
async fn tx_01_a_call_dropped_while_begin_is_on_the_wire() {
    for fault in [Fault::HoldBefore, Fault::HoldAnswer] {
        let database = Fresh::new().await;
        let (proxy, pool) = database.proxied(1);
        let body = Body::new();
        only_first_runs(&pool, 0, &body).await.unwrap();
        let held = proxy.on("BEGIN", fault);
        let call = tokio::spawn({
            let (pool, body) = (pool.clone(), body.clone());
            async move { only_first_runs(&pool, 1, &body).await }
        });
        match fault {
            Fault::HoldBefore => {
                // Nothing tells that a statement is kept back but the connection that waits for it.
                while pool.num_idle() > 0 {
                    tokio::task::yield_now().await;
                }
            }
            _ => held.wait().await,
        }
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        held.release();
        // Nobody else uses the connection: whoever began must end it.
        database.0.quiet().await;
        let direct = database.pool(1).await;
        sqlx::query("INSERT INTO effect (no, cents) VALUES (1, 0)")
            .execute(&pool)
            .await
            .unwrap();
        assert_eq!(effects(&direct, 1).await, 1, "not inside a transaction");
        assert_eq!(only_first_runs(&pool, 1, &body).await.unwrap(), 2);
        assert_eq!(effects(&direct, 1).await, 2);
        drop(proxy);
    }
}
