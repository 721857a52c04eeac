//! An order that is paid once, whoever says so and however often.
//!
//! ```text
//! cargo run --example order_states
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use idem::machine::{Progress, RequireError, Transition};
use idem::{StateMachine, idempotent};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use sqlx::{Sqlite, Transaction};

/// What may become of an order.
#[derive(StateMachine, Clone, Copy, Debug, PartialEq, Eq)]
#[state_machine(column = 16)]
enum Status {
    #[state(initial, to(Paid, Cancelled))]
    Pending,
    #[state(to(Refunding))]
    Paid,
    #[state(to(Refunded))]
    Refunding,
    #[state(terminal)]
    Refunded,
    #[state(terminal)]
    Cancelled,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Answer {
    Paid,
    PaidBefore,
}

#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error(transparent)]
    Idem(#[from] idem::Error),
    #[error(transparent)]
    Status(#[from] RequireError<Status>),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// The key makes a repeat of a notice a replay; the state makes another notice for the same order a
/// success without effect, and one for a cancelled order an error.
#[idempotent(key = "notice:{notice}", ttl = "30d", store = "tx")]
async fn pay(
    orders: &Transition<Status>,
    tx: &mut Transaction<'_, Sqlite>,
    notice: &str,
    order: i64,
) -> Result<Answer, OrderError> {
    match orders.require(tx, order, Status::Paid).await? {
        Progress::Before => Ok(Answer::PaidBefore),
        Progress::Now => {
            sqlx::query("INSERT INTO shipment (order_id) VALUES ($1)")
                .bind(order)
                .execute(&mut **tx)
                .await?;
            Ok(Answer::Paid)
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), OrderError> {
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .connect("sqlite::memory:")
        .await?;
    idem::store::sqlite::migrate(&pool).await?;
    sqlx::raw_sql(
        "CREATE TABLE shop_order (id INTEGER PRIMARY KEY, status VARCHAR(16) NOT NULL,
                                  version INTEGER NOT NULL DEFAULT 0, paid_at TEXT);
         CREATE TABLE shipment (order_id INTEGER NOT NULL);
         INSERT INTO shop_order (id, status) VALUES (1, 'pending'), (2, 'cancelled');",
    )
    .execute(&pool)
    .await?;

    let orders = Transition::in_table("shop_order")
        .bump_version("version")
        .stamp_once(Status::Paid, "paid_at")
        .build()?;
    for (notice, order) in [("n1", 1), ("n1", 1), ("n2", 1), ("n3", 2), ("n4", 3)] {
        println!(
            "{notice} for order {order}: {}",
            call(&orders, &pool, notice, order).await?
        );
    }
    let (status, version, shipments): (Status, i64, i64) = sqlx::query_as(
        "SELECT status, version, (SELECT COUNT(*) FROM shipment) FROM shop_order WHERE id = 1",
    )
    .fetch_one(&pool)
    .await?;
    println!("order 1 is {status:?}, version {version}; shipments: {shipments}\n");
    print!("{}", Status::mermaid());
    Ok(())
}

/// A call as a caller makes it: in a transaction, which is committed when all went well.
async fn call(
    orders: &Transition<Status>,
    pool: &SqlitePool,
    notice: &str,
    order: i64,
) -> Result<String, OrderError> {
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    match pay(orders, &mut tx, notice, order).await {
        Ok(answer) => {
            tx.commit().await?;
            Ok(format!("{answer:?}"))
        }
        Err(OrderError::Status(refused)) => Ok(format!("refused: {refused}")),
        Err(error) => Err(error),
    }
}
