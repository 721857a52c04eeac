//! The framework's own transaction: the caller has a pool, the body sees `tx`, and begin, commit
//! and rollback are the attribute's business.
//!
//! ```text
//! cargo run --example owned
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use futures_util::future::try_join_all;
use idem::idempotent;
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Reservation {
    id: i64,
    left: i64,
}

#[derive(Debug, thiserror::Error)]
enum StockError {
    #[error(transparent)]
    Idem(#[from] idem::Error),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("only {left} left")]
    SoldOut { left: i64 },
}

/// Takes items out of stock for an order. An error rolls everything back and is not recorded: the
/// same call may succeed when there is stock again.
#[idempotent(key = "stock:{order_no}", ttl = "30d", store = "pool", tx = "tx")]
async fn reserve(pool: &SqlitePool, order_no: &str, items: i64) -> Result<Reservation, StockError> {
    let left: i64 = sqlx::query_scalar("UPDATE stock SET items = items - $1 RETURNING items")
        .bind(items)
        .fetch_one(&mut **tx)
        .await?;
    if left < 0 {
        return Err(StockError::SoldOut { left: left + items });
    }
    let id = sqlx::query_scalar("INSERT INTO reservations (items) VALUES ($1) RETURNING id")
        .bind(items)
        .fetch_one(&mut **tx)
        .await?;
    Ok(Reservation { id, left })
}

#[tokio::main]
async fn main() -> Result<(), StockError> {
    // A database in memory is as long as its one connection; a hundred callers share it.
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .connect("sqlite::memory:")
        .await?;
    idem::store::sqlite::migrate(&pool).await?;
    sqlx::raw_sql(
        "CREATE TABLE stock (items INTEGER NOT NULL);
         CREATE TABLE reservations (id INTEGER PRIMARY KEY, items INTEGER NOT NULL);
         INSERT INTO stock (items) VALUES (10);",
    )
    .execute(&pool)
    .await?;

    let calls = (0..100).map(|_| idem::observe(reserve(&pool, "o1", 4)));
    let calls = calls.map(async |call| {
        let (answer, seen) = call.await;
        Ok::<_, StockError>((answer?, seen.replayed()))
    });
    let answers = try_join_all(calls).await?;
    let ran = answers.iter().filter(|(_, replayed)| !replayed).count();
    let equal = answers.iter().all(|(answer, _)| *answer == answers[0].0);
    println!("100 equal calls at once: {ran} ran, equal answers: {equal}");
    println!("answer: {:?}", answers[0].0);

    match reserve(&pool, "o2", 7).await {
        Err(error @ StockError::SoldOut { .. }) => println!("too many: {error}"),
        other => println!("unexpected: {other:?}"),
    }
    sqlx::query("UPDATE stock SET items = items + 5")
        .execute(&pool)
        .await?;
    println!(
        "the same call after new stock: {:?}",
        reserve(&pool, "o2", 7).await?
    );
    Ok(())
}
