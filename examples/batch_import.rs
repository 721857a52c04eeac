//! An import that fails in the middle and is sent again, and a payout run that is all or nothing.
//!
//! ```text
//! cargo run --example batch_import
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::time::Duration;

use idem::batch::{Batch, BatchError, Outcome, Report};
use idem::idempotent;
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions, SqliteTransaction};

const MONTH: Duration = Duration::from_secs(30 * 86_400);

#[derive(Debug, thiserror::Error)]
enum ImportError {
    #[error(transparent)]
    Idem(#[from] idem::Error),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("there is no customer {0}")]
    NoCustomer(String),
}

/// One line of a file.
#[derive(serde::Serialize)]
struct Line {
    order_no: &'static str,
    customer: &'static str,
    cents: i64,
}

const FILE: [Line; 5] = [
    line("A-1", "ann", 500),
    line("A-2", "bob", 700),
    line("A-3", "carl", 900),
    line("A-1", "ann", 500),
    line("A-2", "bob", 7),
];

const fn line(order_no: &'static str, customer: &'static str, cents: i64) -> Line {
    Line {
        order_no,
        customer,
        cents,
    }
}

/// Books a line, in a transaction of its own.
#[idempotent(
    key = "order:{line.order_no}", scope = "order.import", shared_scope, ttl = "30d", store = pool, tx = tx,
    fingerprint(line.customer, line.cents), companion = book_call
)]
async fn book(pool: &SqlitePool, line: &Line) -> Result<i64, ImportError> {
    insert(tx, line).await
}

/// The same operation in the caller's transaction.
#[idempotent(
    key = "order:{line.order_no}", scope = "order.import", shared_scope, ttl = "30d", store = tx,
    fingerprint(line.customer, line.cents)
)]
async fn book_in(tx: &mut SqliteTransaction<'_>, line: &Line) -> Result<i64, ImportError> {
    insert(tx, line).await
}

async fn insert(tx: &mut SqliteTransaction<'_>, line: &Line) -> Result<i64, ImportError> {
    let customer: Option<i64> = sqlx::query_scalar("SELECT id FROM customer WHERE name = $1")
        .bind(line.customer)
        .fetch_optional(&mut **tx)
        .await?;
    let customer = customer.ok_or_else(|| ImportError::NoCustomer(line.customer.to_owned()))?;
    let id =
        sqlx::query_scalar("INSERT INTO orders (customer, cents) VALUES ($1, $2) RETURNING id")
            .bind(customer)
            .bind(line.cents)
            .fetch_one(&mut **tx)
            .await?;
    Ok(id)
}

/// Sends the file line by line, two at a time.
async fn import(pool: &SqlitePool) -> Result<(), idem::Error> {
    let report = Batch::new("orders", "may.csv", MONTH)
        .contents(&FILE)?
        .concurrency(2)
        .each(pool, &FILE, book_call, |line| book(pool, line))
        .await?;
    print(&FILE, &report);
    Ok(())
}

/// Sends lines as one.
async fn import_all(
    pool: &SqlitePool,
    key: &str,
    lines: &[Line],
) -> Result<Report<i64, ImportError>, BatchError<ImportError>> {
    Batch::new("orders", key, MONTH)
        .contents(lines)?
        .all(pool, lines, book_call, |mut tx, line| async move {
            book_in(&mut tx, line).await
        })
        .await
}

fn print(lines: &[Line], report: &Report<i64, ImportError>) {
    for (line, outcome) in lines.iter().zip(&report.outcomes) {
        let text = match outcome {
            Outcome::New(id) => format!("booked as {id}"),
            Outcome::Replayed(id) => format!("known as {id}"),
            Outcome::Mismatch(_) => "refused: another payload under this number".to_owned(),
            Outcome::Failed(error) => format!("failed: {error}"),
            _ => "unknown to this version".to_owned(),
        };
        println!("  {} {:>4} {text}", line.order_no, line.cents);
    }
}

async fn add_customer(pool: &SqlitePool, name: &str) -> Result<(), sqlx::Error> {
    let insert = sqlx::query("INSERT INTO customer (name) VALUES ($1)");
    insert.bind(name.to_owned()).execute(pool).await.map(|_| ())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A database in memory is as long as its one connection.
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .connect("sqlite::memory:")
        .await?;
    idem::store::sqlite::migrate(&pool).await?;
    sqlx::raw_sql(
        "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
         CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL, cents INTEGER NOT NULL);",
    )
    .execute(&pool)
    .await?;
    add_customer(&pool, "ann").await?;
    add_customer(&pool, "bob").await?;

    println!("sent for the first time, before anybody knows carl:");
    import(&pool).await?;
    add_customer(&pool, "carl").await?;
    println!("sent again:");
    import(&pool).await?;

    println!("all or nothing, with a stranger in the middle:");
    let lines = [
        line("B-1", "ann", 100),
        line("B-2", "dora", 200),
        line("B-3", "bob", 300),
    ];
    match import_all(&pool, "june.csv", &lines).await {
        Ok(report) => print(&lines, &report),
        Err(error) => println!("  {error}"),
    }
    add_customer(&pool, "dora").await?;
    println!("sent again:");
    print(&lines, &import_all(&pool, "june.csv", &lines).await?);

    println!("another list under the same key:");
    match import_all(&pool, "june.csv", &lines[..2]).await {
        Ok(report) => print(&lines, &report),
        Err(error) => println!("  {error}"),
    }
    let orders: i64 = sqlx::query_scalar("SELECT count(*) FROM orders")
        .fetch_one(&pool)
        .await?;
    println!("{orders} orders");
    Ok(())
}
