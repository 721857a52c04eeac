//! A service function that is called twice and books once.
//!
//! ```text
//! cargo run --example quickstart
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use idem::idempotent;
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use sqlx::{Sqlite, Transaction};

/// What the caller sends. Two calls with the same merchant and order number are the same call.
#[derive(Clone, Serialize)]
struct CreateOrder {
    merchant: String,
    order_no: String,
    amount: i64,
}

/// What it gets, the first time and every time after.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: i64,
    amount: i64,
}

#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error(transparent)]
    Idem(#[from] idem::Error),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Reservation, order and recorded answer live in the caller's transaction: all or nothing.
#[idempotent(key = "order:{req.merchant}:{req.order_no}", ttl = "7d", store = "tx")]
async fn create_order(
    tx: &mut Transaction<'_, Sqlite>,
    req: CreateOrder,
) -> Result<Order, OrderError> {
    let id = sqlx::query_scalar("INSERT INTO orders (amount) VALUES ($1) RETURNING id")
        .bind(req.amount)
        .fetch_one(&mut **tx)
        .await?;
    Ok(Order {
        id,
        amount: req.amount,
    })
}

/// A call as a caller makes it: in a transaction, which is committed when all went well.
async fn call(pool: &SqlitePool, req: CreateOrder) -> Result<Order, OrderError> {
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    let (answer, seen) = idem::observe(create_order(&mut tx, req)).await;
    let order = answer?;
    tx.commit().await?;
    let how = if seen.replayed() {
        "replay"
    } else {
        "first run"
    };
    println!("{how}: {order:?}");
    Ok(order)
}

#[tokio::main]
async fn main() -> Result<(), OrderError> {
    // A database in memory is as long as its one connection.
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .connect("sqlite::memory:")
        .await?;
    idem::store::sqlite::migrate(&pool).await?;
    sqlx::raw_sql("CREATE TABLE orders (id INTEGER PRIMARY KEY, amount INTEGER NOT NULL)")
        .execute(&pool)
        .await?;

    let req = CreateOrder {
        merchant: "m1".to_owned(),
        order_no: "o1".to_owned(),
        amount: 1230,
    };
    let first = call(&pool, req.clone()).await?;
    let again = call(&pool, req.clone()).await?;
    assert_eq!(first, again);

    let other_amount = CreateOrder { amount: 999, ..req };
    if let Err(error) = call(&pool, other_amount).await {
        println!("refused: {error}");
    }

    let orders: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM orders")
        .fetch_one(&pool)
        .await?;
    println!("orders in the table: {orders}");
    Ok(())
}
