//! The service on Postgres.

use std::str::FromStr as _;
use std::time::Duration;

use sqlx::Connection as _;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};

use crate::database::CannotOpen;

#[path = "books.rs"]
pub(crate) mod books;
#[path = "delivery.rs"]
pub(crate) mod delivery;
#[path = "service.rs"]
mod service;

pub(crate) type Db = sqlx::Postgres;

const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// A server has about a hundred, for everybody.
const MAX_CONNECTIONS: u32 = 16;

/// Any number, the same in every process that opens this shop.
const SCHEMA_LOCK: i64 = 0x6964_656d_2d65_7867;

/// A pool goes on trying and then says that it timed out; one connection says why.
async fn reach(options: &PgConnectOptions) -> Result<(), CannotOpen> {
    let connect = PgConnection::connect_with(options);
    let error = match tokio::time::timeout(REACHED_WITHIN, connect).await {
        Ok(Ok(connection)) => return Ok(connection.close().await?),
        Ok(Err(error)) => error,
        Err(_) => sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()),
    };
    let (host, port) = (options.get_host(), options.get_port());
    Err(CannotOpen::Unreachable {
        server: format!("{host}:{port}"),
        error,
    })
}

const REACHED_WITHIN: Duration = Duration::from_secs(10);

pub(crate) async fn open(url: &str, concurrency: u16) -> Result<PgPool, CannotOpen> {
    let options = PgConnectOptions::from_str(url)?;
    reach(&options).await?;
    let pool = PgPoolOptions::new()
        .max_connections(MAX_CONNECTIONS.min(concurrency.into()))
        .connect_with(options)
        .await?;
    idem::store::postgres::migrate(&pool).await?;
    // Two processes that create a table at once can both find it missing, and one then fails.
    let mut tx = pool.begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(SCHEMA_LOCK)
        .execute(&mut *tx)
        .await?;
    sqlx::raw_sql(crate::schema::POSTGRES)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(pool)
}
