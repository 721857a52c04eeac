//! Two people edit one account: nobody's change is lost, and nobody is told "done" who was not.
//!
//! ```text
//! cargo run --example optimistic_lock
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use futures_util::future::try_join_all;
use idem::retry::{GaveUp, RetryPolicy, Retryable, retry_transaction};
use idem::version::{VersionError, VersionedUpdate};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use sqlx::{Connection as _, Sqlite, SqliteConnection};

#[derive(Debug, thiserror::Error)]
enum AccountError {
    #[error(transparent)]
    Version(#[from] VersionError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("only {0} there")]
    TooLittle(i64),
}

impl Retryable for AccountError {
    fn calls_for_retry(&self) -> bool {
        match self {
            Self::Version(error) => error.calls_for_retry(),
            Self::Database(error) => error.calls_for_retry(),
            Self::TooLittle(_) => false,
        }
    }
}

struct Accounts {
    pool: SqlitePool,
    balance: VersionedUpdate<Sqlite, 1>,
}

impl Accounts {
    /// Reads, decides and writes in one transaction, and all of it again if somebody was faster.
    async fn withdraw(&self, id: i64, cents: i64) -> Result<i64, GaveUp<AccountError>> {
        retry_transaction(&self.pool, RetryPolicy::default(), |mut tx| async move {
            let (balance, version) = read(&mut tx, id).await?;
            if balance < cents {
                return Err(AccountError::TooLittle(balance));
            }
            let left = balance - cents;
            self.balance.apply(&mut tx, id, version, (left,)).await?;
            Ok(left)
        })
        .await
    }
}

async fn read(conn: &mut SqliteConnection, id: i64) -> Result<(i64, i64), VersionError> {
    let row = sqlx::query_as("SELECT balance, version FROM account WHERE id = $1");
    let row = row.bind(id).fetch_optional(conn).await?;
    row.ok_or(VersionError::NotFound)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A database in memory is as long as its one connection.
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .connect("sqlite::memory:")
        .await?;
    sqlx::raw_sql(
        "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL,
             version INTEGER NOT NULL DEFAULT 1) STRICT;
         INSERT INTO account (id, balance) VALUES (1, 1000), (2, 50)",
    )
    .execute(&pool)
    .await?;
    let balance = VersionedUpdate::new("account", ["balance"])?;
    let accounts = Accounts { pool, balance };

    // Two forms were opened when the account had version 1; the second one saved is stale.
    let mut conn = accounts.pool.acquire().await?;
    let (_, opened) = read(&mut conn, 1).await?;
    let saved = accounts.balance.apply(&mut conn, 1, opened, (900,)).await?;
    println!("first form: saved, now version {}", saved.version);
    match accounts.balance.apply(&mut conn, 1, opened, (950,)).await {
        Err(error @ VersionError::Conflict { .. }) => println!("second form: {error}"),
        other => println!("second form: {other:?}"),
    }
    match accounts.balance.apply(&mut conn, 7, opened, (950,)).await {
        Err(error @ VersionError::NotFound) => println!("a deleted account: {error}"),
        other => println!("a deleted account: {other:?}"),
    }

    // Two accounts at once: one of them is stale, so neither is changed, though the caller commits.
    let mut tx = conn.begin().await?;
    let both = [(2, 1, (0,)), (1, 1, (950,))];
    if let Err(error) = accounts.balance.apply_all(&mut tx, both).await {
        println!("a transfer from stale forms: {error}");
    }
    tx.commit().await?;
    println!("account 2: {:?}", read(&mut conn, 2).await?);
    drop(conn);

    try_join_all((0..20).map(|_| accounts.withdraw(1, 40))).await?;
    let mut conn = accounts.pool.acquire().await?;
    println!(
        "after 20 withdrawals of 40: {:?}",
        read(&mut conn, 1).await?
    );
    drop(conn);
    if let Err(error) = accounts.withdraw(1, 101).await {
        println!("101 more: {error}");
    }
    Ok(())
}
