//! The service on Postgres.

use sqlx::postgres::{PgPool, PgPoolOptions};

use crate::database::CannotOpen;

#[path = "books.rs"]
pub(crate) mod books;
#[path = "delivery.rs"]
pub(crate) mod delivery;
#[path = "service.rs"]
mod service;

pub(crate) type Db = sqlx::Postgres;

/// At the default isolation, READ COMMITTED.
const BEGIN: &str = "BEGIN";

const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// A server has about a hundred, for everybody.
const MAX_CONNECTIONS: u32 = 16;

/// Any number, the same in every process that opens this shop.
const SCHEMA_LOCK: i64 = 0x6964_656d_2d65_7867;

pub(crate) async fn open(url: &str, concurrency: u16) -> Result<PgPool, CannotOpen> {
    let pool = PgPoolOptions::new()
        .max_connections(MAX_CONNECTIONS.min(concurrency.into()))
        .connect(url)
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
