//! Stock that different orders compete for: never below zero, held once, given back once.
//!
//! The key answers the repeat of one order. It knows nothing of the other orders: that is the
//! condition in the update. And a hold ends as sold or as released, whoever comes first.
//!
//! ```text
//! cargo run --example inventory
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use idem::machine::{Progress, RequireError, Transition};
use idem::testing::replay;
use idem::{StateMachine, idempotent};
use idem_examples::{Findings, Scratch, records_expire};
use serde::Serialize;
use sqlx::sqlite::SqlitePool;

const SCHEMA: &str = "
CREATE TABLE stock (sku TEXT PRIMARY KEY, items INTEGER NOT NULL CHECK (items >= 0)) STRICT;
CREATE TABLE hold (order_no TEXT PRIMARY KEY, status TEXT NOT NULL DEFAULT 'held') STRICT;
CREATE TABLE hold_line (order_no TEXT NOT NULL REFERENCES hold (order_no), sku TEXT NOT NULL,
    items INTEGER NOT NULL CHECK (items > 0), PRIMARY KEY (order_no, sku)) STRICT;
INSERT INTO stock VALUES ('book', 100), ('lamp', 2);";

#[derive(StateMachine, Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[state_machine(column = text)]
enum Status {
    #[state(initial, to(Sold, Released))]
    Held,
    #[state(terminal)]
    Sold,
    #[state(terminal)]
    Released,
}

#[derive(Debug, thiserror::Error)]
enum StockError {
    #[error(transparent)]
    Idem(#[from] idem::Error),
    #[error(transparent)]
    Status(#[from] RequireError<Status>),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("not enough {0}")]
    SoldOut(String),
}

type Lines = Vec<(String, i64)>;

struct Warehouse {
    pool: SqlitePool,
    holds: Transition<Status>,
}

impl Warehouse {
    /// Holds all lines of an order or none. `lines` are sorted, so that two orders never wait for
    /// each other's rows in a circle. Sold out is not recorded: there may be stock tomorrow.
    /// A repeat that outlives its record meets the hold's primary key.
    #[idempotent(key = "hold:{order_no}", ttl = "30d", store = self.pool, tx = tx)]
    async fn hold(&self, order_no: &str, lines: &Lines) -> Result<(), StockError> {
        let hold = sqlx::query("INSERT INTO hold (order_no) VALUES ($1)");
        hold.bind(order_no).execute(&mut **tx).await?;
        for (sku, items) in lines {
            // Not read, compare, write: between the two another order takes the last one.
            let take = "UPDATE stock SET items = items - $2 WHERE sku = $1 AND items >= $2";
            let take = sqlx::query(take).bind(sku).bind(items);
            if take.execute(&mut **tx).await?.rows_affected() != 1 {
                return Err(StockError::SoldOut(sku.clone()));
            }
            let line = "INSERT INTO hold_line (order_no, sku, items) VALUES ($1, $2, $3)";
            let line = sqlx::query(line).bind(order_no).bind(sku).bind(items);
            line.execute(&mut **tx).await?;
        }
        Ok(())
    }

    /// Ends a hold: paid for, or not in time. No key: the state of the hold is all that a repeat
    /// needs, and every sweep comes as another request.
    async fn end(&self, order_no: &str, to: Status) -> Result<(), StockError> {
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        let progress = self.holds.require(&mut tx, order_no, to).await?;
        if progress == Progress::Now && to == Status::Released {
            let give_back = sqlx::query(
                "UPDATE stock SET items = stock.items + line.items FROM hold_line line
                 WHERE line.order_no = $1 AND line.sku = stock.sku",
            );
            give_back.bind(order_no).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(())
    }
}

fn lines(of: &[(&str, i64)]) -> Lines {
    let line = |(sku, items): &(&str, i64)| ((*sku).to_owned(), *items);
    of.iter().map(line).collect()
}

const BOOKS: &str = "SELECT items FROM stock WHERE sku = 'book'";

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let scratch = Scratch::new()?;
    let pool = scratch.open(SCHEMA, 8).await?;
    let mut found = Findings::new(&pool);
    let holds = Transition::in_table("hold").id_column("order_no").build()?;
    let house = Arc::new(Warehouse { pool, holds });
    let hold = |order_no: String, of: &[(&str, i64)]| {
        let (house, lines) = (Arc::clone(&house), lines(of));
        async move { house.hold(&order_no, &lines).await }
    };

    found.attack("forty orders of three for a stock of a hundred, each sent twice, at once");
    let mut sent = 0;
    let report = replay::run(80, || {
        sent += 1;
        hold(format!("o{}", (sent - 1) / 2), &[("book", 3)])
    });
    let report = report.await;
    let held = report.answers().flatten().count();
    found.row("the key: two answers of 33 orders", held, 66);
    let sold_out = |it: &&_| matches!(it, Err(StockError::SoldOut(_)));
    let sold_out = report.answers().filter(sold_out).count();
    found.row("the condition: sold out", sold_out, 14);
    found.number("books left", BOOKS, 1).await?;

    found.attack("an order of two lines, the second sold out");
    let both = hold("both".to_owned(), &[("book", 1), ("lamp", 3)]).await;
    found.refused("all or none", &both, "not enough lamp");
    found.number("books left", BOOKS, 1).await?;
    let more = sqlx::query("UPDATE stock SET items = 3 WHERE sku = 'lamp'");
    more.execute(&house.pool).await?;
    hold("both".to_owned(), &[("book", 1), ("lamp", 3)]).await?;
    found
        .number("the same order after new stock", BOOKS, 0)
        .await?;

    found.attack("every hold is paid for, and swept by three sweepers, at once");
    let orders: Vec<String> = sqlx::query_scalar("SELECT order_no FROM hold")
        .fetch_all(&house.pool)
        .await?;
    let mut next = 0;
    let report = replay::run(orders.len() * 4, || {
        let to = [Status::Sold, Status::Released][usize::from(next % 4 != 0)];
        let (house, order_no) = (Arc::clone(&house), orders[next / 4].clone());
        next += 1;
        async move { house.end(&order_no, to).await }
    });
    let _ = report.await;
    let held = "SELECT COUNT(*) FROM hold WHERE status = 'held'";
    found.number("still held", held, 0).await?;
    let books = "SELECT (SELECT items FROM stock WHERE sku = 'book') + COALESCE(SUM(items), 0)
        FROM hold_line JOIN hold USING (order_no) WHERE sku = 'book' AND status = 'sold'";
    found.number("books: sold and in stock", books, 100).await?;

    found.attack("a month later: the records have expired");
    records_expire(&house.pool).await?;
    let late = hold("both".to_owned(), &[("book", 1), ("lamp", 3)]).await;
    found.refused("the primary key of the hold", &late, "UNIQUE constraint");
    let lamps = "SELECT (SELECT items FROM stock WHERE sku = 'lamp') + COALESCE(SUM(items), 0)
        FROM hold_line JOIN hold USING (order_no) WHERE sku = 'lamp' AND status = 'sold'";
    found.number("lamps: sold and in stock", lamps, 3).await?;
    Ok(found.verdict())
}
