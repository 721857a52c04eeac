//! The service on SQLite.

use std::str::FromStr as _;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};

use crate::database::CannotOpen;

#[path = "books.rs"]
pub(crate) mod books;
#[path = "delivery.rs"]
pub(crate) mod delivery;
#[path = "service.rs"]
mod service;

pub(crate) type Db = sqlx::Sqlite;

const SNAPSHOT: &str = "BEGIN";

/// SQLite has one writer. Callers queue for a connection, in their order, rather than in SQLite,
/// which lets them try again and again.
const CONNECTIONS: u32 = 2;

pub(crate) async fn open(url: &str) -> Result<SqlitePool, CannotOpen> {
    if url.contains(":memory:") || url.contains("mode=memory") {
        return Err(CannotOpen::InMemory);
    }
    let options = SqliteConnectOptions::from_str(url)?
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(Duration::from_secs(30));
    let pool = SqlitePoolOptions::new()
        .max_connections(CONNECTIONS)
        .connect_with(options)
        .await?;
    idem::store::sqlite::migrate(&pool).await?;
    sqlx::raw_sql(crate::schema::SQLITE).execute(&pool).await?;
    Ok(pool)
}
