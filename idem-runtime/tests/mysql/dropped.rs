//! Calls that are dropped while a statement is on the wire: the driver cannot go on after that.

use std::time::Duration;

use idem_test_support::poll::drop_after_time;
use idem_test_support::proxy::{Direction, Fault};
use sqlx::mysql::MySqlPool;
use tokio::task::JoinSet;

use crate::database::Database;
use crate::service::{Body, pay_alone};

/// All connections of the pool can be had, and used.
async fn all_are_there(pool: &MySqlPool) {
    let mut held = Vec::new();
    for _ in 0..pool.options().get_max_connections() {
        let conn = tokio::time::timeout(Duration::from_secs(60), pool.acquire()).await;
        held.push(conn.expect("a connection").unwrap());
    }
    for conn in &mut held {
        let one: i64 = sqlx::query_scalar("SELECT 1")
            .fetch_one(&mut **conn)
            .await
            .unwrap();
        assert_eq!(one, 1);
    }
}

#[tokio::test]
async fn calls_dropped_at_any_time_leave_the_pool_usable() {
    let db = Database::fresh().await;
    let proxy = db.proxy();
    let pool = db.pool_through(&proxy, 3);
    let body = Body::default();
    proxy.delay(Direction::ToServer, Duration::from_millis(2));
    proxy.delay(Direction::ToClient, Duration::from_millis(1));
    let mut calls = JoinSet::new();
    for no in 1..=12_u64 {
        let (pool, body) = (pool.clone(), body.clone());
        calls.spawn(async move {
            let name = no.to_string();
            let call = pay_alone(&pool, &name, 100, body);
            drop_after_time(call, Duration::from_millis(3 * no)).await;
        });
    }
    calls.join_all().await;
    proxy.heal();
    all_are_there(&pool).await;
    // Each of them is there once at most, and now once.
    for no in 1..=12 {
        pay_alone(&pool, &no.to_string(), 100, body.clone())
            .await
            .unwrap();
    }
    assert_eq!((db.orders().await, db.records().await), (12, 12));
}

/// Of the framework's statements, of the body's, and of the end.
#[tokio::test]
async fn a_call_dropped_in_a_statement_gives_its_connection_back() {
    for statement in [
        "INSERT INTO idem_record",
        "INSERT INTO orders",
        "UPDATE idem_record",
        "COMMIT",
    ] {
        let db = Database::fresh().await;
        let proxy = db.proxy();
        let pool = db.pool_through(&proxy, 1);
        let body = Body::default();
        let held = proxy.on(statement, Fault::HoldAnswer);
        let call = tokio::spawn({
            let (pool, body) = (pool.clone(), body.clone());
            async move { pay_alone(&pool, "1", 100, body).await }
        });
        held.wait().await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        held.release();
        all_are_there(&pool).await;
        pay_alone(&pool, "1", 100, body.clone()).await.unwrap();
        assert_eq!(
            (db.orders().await, db.records().await),
            (1, 1),
            "{statement}"
        );
    }
}
