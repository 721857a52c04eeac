//! An order in three steps in two places: reserved here, charged elsewhere, confirmed here.
//!
//! ```text
//! cargo run --example order_saga
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use idem::idempotent;
use idem::steps::{
    DefinitionError, Saga, SagaError, SagaTable, Step, StepError, StepTx, Steps, Undo,
};
use idem::store::sql::LeasedSql;
use serde::{Deserialize, Serialize};
use sqlx::Sqlite;
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    no: i64,
    cents: i64,
    address: String,
}

/// A payment provider that keeps idempotency keys, as they do. Its network loses an answer at times.
#[derive(Clone, Default)]
struct Provider(Arc<Mutex<Books>>);

#[derive(Default)]
struct Books {
    charges: BTreeMap<String, i64>,
    refunds: BTreeMap<String, i64>,
    lose_answers: u32,
}

impl Provider {
    /// Charges once under one key.
    fn charge(&self, key: &str, cents: i64) -> Result<String, std::io::Error> {
        let mut books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        books.charges.insert(key.to_owned(), cents);
        if books.lose_answers > 0 {
            books.lose_answers -= 1;
            return Err(std::io::Error::other("no answer"));
        }
        Ok(format!("ch-{}", books.charges.len()))
    }

    fn refund(&self, key: &str, cents: i64) {
        let mut books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        books.refunds.insert(key.to_owned(), cents);
    }

    fn sums(&self) -> (i64, i64) {
        let books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (books.charges.values().sum(), books.refunds.values().sum())
    }
}

/// In the database: committed together with its record.
async fn reserve(mut step: StepTx<Sqlite, Order, Provider>) -> Result<i64, StepError> {
    let (step, tx) = step.split();
    let insert = sqlx::query("INSERT INTO reservation (order_no) VALUES (?)").bind(step.input().no);
    let done = insert.execute(&mut **tx).await?;
    Ok(done.last_insert_rowid())
}

async fn release(
    mut step: StepTx<Sqlite, Order, Provider>,
    reservation: i64,
) -> Result<(), StepError> {
    let delete = sqlx::query("DELETE FROM reservation WHERE id = ?").bind(reservation);
    delete.execute(&mut **step.tx()).await?;
    Ok(())
}

/// Elsewhere: the other side gets a key that is the same in every attempt.
async fn charge(step: Step<Order, Provider>) -> Result<String, StepError> {
    let (key, cents) = (step.idempotency_key(), step.input().cents);
    if cents > 100_000 {
        // A decision: this had no effect, and is final.
        return Err(StepError::refused("the card's limit is exceeded"));
    }
    // No answer: tried again, with the same key.
    step.context().charge(&key, cents).map_err(StepError::retry)
}

async fn refund(step: Step<Order, Provider>, charge: Undo<String>) -> Result<(), StepError> {
    match charge {
        Undo::Done(id) => println!("  refund of {id}"),
        Undo::Unknown => println!("  refund of what there may be"),
    }
    step.context()
        .refund(&step.idempotency_key(), step.input().cents);
    Ok(())
}

async fn confirm(mut step: StepTx<Sqlite, Order, Provider>) -> Result<(), StepError> {
    if step.input().address.is_empty() {
        return Err(StepError::refused("nowhere to ship to"));
    }
    let (no, charge) = (step.input().no, step.result::<String>("charge")?);
    let insert = sqlx::query("INSERT INTO confirmed VALUES (?, ?)")
        .bind(no)
        .bind(charge);
    insert.execute(&mut **step.tx()).await?;
    Ok(())
}

fn placing(pool: &SqlitePool, provider: &Provider) -> Result<Placing, DefinitionError> {
    Steps::named("order.place", provider.clone())
        .step("reserve", reserve, release)
        .outside("charge", charge, refund)
        .step_without_undo("confirm", confirm)
        .build(pool)
}

type Placing = Saga<Sqlite, Order, Provider>;

#[derive(Debug, thiserror::Error)]
enum PlaceError {
    #[error(transparent)]
    Idem(#[from] idem::Error),
    #[error(transparent)]
    Saga(#[from] SagaError),
}

/// The saga inside an idempotent function: the call is answered from its record, and a call that
/// died midway is run on from its steps.
#[idempotent(key = "place:{order.no}", ttl = "7d", store = "calls")]
async fn place(
    calls: &LeasedSql<Sqlite>,
    saga: &Placing,
    order: &Order,
) -> Result<String, PlaceError> {
    let results = saga.start(&format!("order:{}", order.no), order).await?;
    Ok(results.get("charge")?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A database in memory is as long as its one connection.
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .connect("sqlite::memory:")
        .await?;
    SagaTable::default().migrate(&pool).await?;
    let calls = LeasedSql::new(pool.clone());
    calls.migrate().await?;
    sqlx::raw_sql(
        "CREATE TABLE reservation (id INTEGER PRIMARY KEY, order_no INTEGER NOT NULL);
         CREATE TABLE confirmed (order_no INTEGER NOT NULL, charge TEXT NOT NULL)",
    )
    .execute(&pool)
    .await?;
    let provider = Provider::default();
    let saga = placing(&pool, &provider)?;
    let order = |no, cents, address: &str| Order {
        no,
        cents,
        address: address.to_owned(),
    };

    println!("order 1:");
    let first = order(1, 990, "Main Street 1");
    for _ in 0..2 {
        println!("  paid with {}", place(&calls, &saga, &first).await?);
    }

    println!("order 2, whose first answer is lost:");
    let lose = |count| {
        let mut books = provider.0.lock().unwrap_or_else(PoisonError::into_inner);
        books.lose_answers = count;
    };
    lose(1);
    let second = order(2, 500, "Main Street 2");
    println!("  paid with {}", place(&calls, &saga, &second).await?);

    println!("order 3, which cannot be shipped:");
    let third = order(3, 700, "");
    for _ in 0..2 {
        if let Err(error) = place(&calls, &saga, &third).await {
            println!("  {error}");
        }
    }

    println!("order 4, which is too much:");
    if let Err(error) = place(&calls, &saga, &order(4, 200_000, "Main Street 4")).await {
        println!("  {error}");
    }

    println!("order 5, cancelled before it came:");
    saga.cancel("order:5").await?;
    if let Err(error) = place(&calls, &saga, &order(5, 100, "Main Street 5")).await {
        println!("  {error}");
    }

    if let Some(status) = saga.status("order:3").await? {
        println!("order 3 is {}:", status.state.as_str());
        for step in status.steps {
            println!("  {}: {}", step.name, step.state.as_str());
        }
    }
    let (charged, refunded) = provider.sums();
    println!("charged {charged}, refunded {refunded}");
    let reserved: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM reservation")
        .fetch_one(&pool)
        .await?;
    println!("reserved: {reserved}");
    Ok(())
}
