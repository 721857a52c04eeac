//! A wallet pays an order once, however often and by whomever it is asked.
//!
//! The key knows the request and replays its answer. The state machine knows the order and refuses
//! another request for it. The unique index knows the fact, and stands when the record is gone and
//! the writer is a script that has heard of neither.
//!
//! ```text
//! cargo run --example payments
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use idem::machine::{Progress, RequireError, Transition};
use idem::testing::replay;
use idem::{StateMachine, idempotent};
use idem_examples::{Findings, Scratch, records_expire};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqlitePool;

const SCHEMA: &str = "
CREATE TABLE wallet (owner TEXT PRIMARY KEY, cents INTEGER NOT NULL CHECK (cents >= 0)) STRICT;
CREATE TABLE shop_order (id INTEGER PRIMARY KEY, owner TEXT NOT NULL, status TEXT NOT NULL,
    cents INTEGER NOT NULL CHECK (cents > 0)) STRICT;
CREATE TABLE payment (entry INTEGER PRIMARY KEY, pay_no TEXT NOT NULL UNIQUE,
    order_id INTEGER NOT NULL UNIQUE, cents INTEGER NOT NULL) STRICT;
INSERT INTO wallet VALUES ('ada', 10000);
INSERT INTO shop_order VALUES (1, 'ada', 'pending', 2500), (2, 'ada', 'pending', 3000),
    (3, 'ada', 'pending', 1000), (4, 'ada', 'cancelled', 1000), (5, 'ada', 'pending', 9000);";

type Tx<'c> = sqlx::Transaction<'c, sqlx::Sqlite>;

#[derive(StateMachine, Clone, Copy, Debug, PartialEq, Eq)]
#[state_machine(column = text)]
enum Status {
    #[state(initial, to(Paid, Cancelled))]
    Pending,
    #[state(terminal)]
    Paid,
    #[state(terminal)]
    Cancelled,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    entry: i64,
    cents: i64,
}

#[derive(Debug, thiserror::Error)]
enum PayError {
    #[error(transparent)]
    Idem(#[from] idem::Error),
    #[error(transparent)]
    Status(#[from] RequireError<Status>),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("the order is paid already, by another payment")]
    PaidBefore,
    #[error("this payment number is known for another order or amount")]
    OtherPayment,
    #[error("that is not the price, or not in the wallet")]
    NotTaken,
}

/// Moves the order, takes the money and books it, in the caller's transaction. `pay_no` is the
/// payer's: made once for one intent and sent again with every retry of it.
#[idempotent(
    key = "pay:{pay_no}", ttl = "7d", store = tx,
    backstop = booked(tx, pay_no, order, cents)
)]
async fn pay(
    orders: &Transition<Status>,
    tx: &mut Tx<'_>,
    pay_no: &str,
    order: i64,
    cents: i64,
) -> Result<Receipt, PayError> {
    if let Progress::Before = orders.require(tx, order, Status::Paid).await? {
        return Err(PayError::PaidBefore);
    }
    let taken = sqlx::query(
        "UPDATE wallet SET cents = cents - $2 WHERE cents >= $2
         AND owner = (SELECT owner FROM shop_order WHERE id = $1 AND cents = $2)",
    );
    let taken = taken.bind(order).bind(cents).execute(&mut **tx).await?;
    if taken.rows_affected() != 1 {
        return Err(PayError::NotTaken);
    }
    let entry = sqlx::query_scalar(
        "INSERT INTO payment (pay_no, order_id, cents) VALUES ($1, $2, $3) RETURNING entry",
    );
    let entry = entry.bind(pay_no).bind(order).bind(cents);
    let entry = entry.fetch_one(&mut **tx).await?;
    Ok(Receipt { entry, cents })
}

/// Asked when there is no record. The fingerprint is gone with the record, so this compares.
async fn booked(
    tx: &mut Tx<'_>,
    pay_no: &str,
    order: i64,
    cents: i64,
) -> Result<Option<Receipt>, PayError> {
    let row = sqlx::query_as("SELECT entry, order_id, cents FROM payment WHERE pay_no = $1");
    let row = row.bind(pay_no).fetch_optional(&mut **tx);
    match row.await? {
        None => Ok(None),
        Some((entry, of, paid)) if (of, paid) == (order, cents) => {
            Ok(Some(Receipt { entry, cents }))
        }
        Some(_) => Err(PayError::OtherPayment),
    }
}

struct Payments {
    pool: SqlitePool,
    orders: Transition<Status>,
}

impl Payments {
    /// What the request handler calls: commits what went well, rolls back the rest.
    async fn handle(&self, pay_no: &str, order: i64, cents: i64) -> Result<Receipt, PayError> {
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        let answer = pay(&self.orders, &mut tx, pay_no, order, cents).await;
        match answer {
            Ok(_) => tx.commit().await?,
            Err(_) => tx.rollback().await?,
        }
        answer
    }
}

const TAKEN: &str = "SELECT 10000 - cents FROM wallet";

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let scratch = Scratch::new()?;
    let pool = scratch.open(SCHEMA, 8).await?;
    let orders = Transition::in_table("shop_order").build()?;
    let mut found = Findings::new(&pool);
    let shop = Arc::new(Payments { pool, orders });
    let send = |pay_no: &str, order, cents| {
        let (shop, pay_no) = (Arc::clone(&shop), pay_no.to_owned());
        async move { shop.handle(&pay_no, order, cents).await }
    };

    found.attack("ten replays of one request at once");
    let report = replay::run(10, || send("p1", 1, 2500)).await;
    let calls = "10 calls: 1 first runs, 9 replays, 0 refused";
    found.row("the key", report.to_string(), calls);
    let first = send("p1", 1, 2500).await?;
    let equal = report.answers().flatten().filter(|it| **it == first);
    found.row("equal receipts", equal.count(), 10);
    found.number("cents taken", TAKEN, 2500).await?;

    found.attack("the same number with another amount");
    let other = send("p1", 1, 2400).await;
    found.refused("the key", &other, "another payload");

    found.attack("the process dies before its commit, the payer retries");
    let mut tx = shop.pool.begin_with("BEGIN IMMEDIATE").await?;
    pay(&shop.orders, &mut tx, "p2", 2, 3000).await?;
    drop(tx);
    found.number("taken after the crash", TAKEN, 2500).await?;
    send("p2", 2, 3000).await?;
    found.number("taken after the retry", TAKEN, 5500).await?;

    found.attack("a client that makes a new number for every retry");
    let mut no = 0;
    let report = replay::run(10, || {
        no += 1;
        send(&format!("new{no}"), 3, 1000)
    });
    let report = report.await;
    let paid = report.answers().flatten().count();
    found.row("the state machine: paid", paid, 1);
    let before = |it: &&_| matches!(it, Err(PayError::PaidBefore));
    let before = report.answers().filter(before).count();
    found.row("the state machine: paid before", before, 9);
    found.number("cents taken", TAKEN, 6500).await?;
    let answer = send("p4", 4, 1000).await;
    found.refused("a cancelled order", &answer, "cannot become `paid`");

    found.attack("the eighth day: the records have expired");
    records_expire(&shop.pool).await?;
    let late = send("p1", 1, 2500).await?;
    found.row("the backstop: the first receipt", late == first, true);
    let other = send("p2", 2, 2400).await;
    found.refused("with another amount", &other, "known for another");
    let script = "INSERT INTO payment (pay_no, order_id, cents) VALUES ('repair', 1, 2500)";
    let script = sqlx::query(script).execute(&shop.pool).await;
    found.refused("a repair script: the index", &script, "UNIQUE constraint");

    found.attack("in the end");
    let poor = send("p5", 5, 9000).await;
    found.refused("more than there is", &poor, "not in the wallet");
    let booked = "SELECT SUM(cents) FROM payment";
    found.number("cents booked", booked, 6500).await?;
    found.number("cents taken", TAKEN, 6500).await?;
    Ok(found.verdict())
}
