//! A monthly report that one worker makes at a time, and what becomes of the one who is late.
//!
//! ```text
//! cargo run --example lock
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use idem::lock::{FencedUpdate, LeaseLock, LockError};
use idem::protocol::Fence;
use idem::store::sql::LeasedSql;
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use sqlx::{Sqlite, SqliteConnection};

const NAME: &str = "report:2026-07";

struct Reports {
    pool: SqlitePool,
    body: FencedUpdate<Sqlite, 1>,
}

impl Reports {
    async fn write(&self, fence: Fence, text: &str) -> Result<String, sqlx::Error> {
        let mut conn = self.pool.acquire().await?;
        Ok(match self.body.apply(&mut conn, fence, 1, (text,)).await {
            Ok(written) => match written.done() {
                Ok(()) => format!("wrote {text:?}"),
                Err(_) => format!("refused {text:?}: a later holder has written"),
            },
            Err(error) => format!("failed: {error}"),
        })
    }

    async fn read(&self) -> Result<Option<String>, sqlx::Error> {
        let mut conn = self.pool.acquire().await?;
        body(&mut conn).await
    }
}

async fn body(conn: &mut SqliteConnection) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar("SELECT body FROM report WHERE id = 1")
        .fetch_one(conn)
        .await
}

// One thread, so that a worker that blocks it keeps its own lock from being renewed.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A database in memory is as long as its one connection.
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .connect("sqlite::memory:")
        .await?;
    sqlx::raw_sql(
        "CREATE TABLE report (id INTEGER PRIMARY KEY, body TEXT, fence INTEGER);
         INSERT INTO report (id) VALUES (1)",
    )
    .execute(&pool)
    .await?;
    let store = LeasedSql::new(pool.clone());
    store.migrate().await?;
    let reports = Reports {
        pool,
        body: FencedUpdate::new("report", ["body"])?,
    };
    let locks = LeaseLock::new(store.clone()).lease(Duration::from_secs(30));

    // Ten workers find no report; one makes it, the others find it under the lock.
    let made = AtomicU64::new(0);
    let workers = (0..10).map(|_| {
        let check = async || reports.read().await.transpose();
        let make = async |fence| {
            made.fetch_add(1, Ordering::SeqCst);
            reports.write(fence, "July").await?;
            Ok("July".to_owned())
        };
        locks.check_then(NAME, check, make)
    });
    let answers = try_join_all(workers).await?;
    let same = answers.iter().flatten().all(|answer| answer == "July");
    let made = made.load(Ordering::SeqCst);
    println!("10 workers, made {made} time, all have it: {same}");

    // Who does not want to wait is told.
    let guard = locks.acquire(NAME).await?;
    match locks.try_acquire(NAME).await {
        Err(LockError::Busy { free_in, .. }) => {
            println!("busy, with a lease that ends: {}", free_in.is_some());
        }
        other => println!("{other:?}"),
    }
    guard.release().await?;

    // A worker stands still past its lease, and another one takes over.
    let short = LeaseLock::new(store).lease(Duration::from_secs(1));
    let slow = short.acquire(NAME).await?;
    std::thread::sleep(Duration::from_millis(1500));
    let quick = locks.acquire(NAME).await?;
    println!(
        "the later number is higher: {}",
        quick.fence() > slow.fence()
    );
    println!(
        "quick: {}",
        reports.write(quick.fence(), "July, corrected").await?
    );
    println!("slow: lost: {}", slow.is_lost());
    println!(
        "slow: {}",
        reports.write(slow.fence(), "July, from memory").await?
    );
    if let Err(error) = slow.release().await {
        println!("slow: {error}");
    }
    quick.release().await?;
    println!("the report: {:?}", reports.read().await?);
    Ok(())
}
