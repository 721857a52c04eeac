//! The same work through the attribute.

use idem::idempotent;
use idem_benches::repeats;

use super::{Failure, Order, Pool, RECORDED, Tx, business};

#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error(transparent)]
    Idem(#[from] idem::Error),
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
}

#[idempotent(
    key = "order:merchant-7:{n}",
    ttl = "7d",
    store = "tx",
    scope = "bench.caller"
)]
async fn create(tx: &mut Tx<'_>, n: u64) -> Result<Order, BenchError> {
    Ok(business(tx, n).await?)
}

#[idempotent(
    key = "order:merchant-7:{n}",
    ttl = "7d",
    store = "pool",
    tx = "tx",
    scope = "bench.owned"
)]
async fn create_owned(pool: &Pool, n: u64) -> Result<Order, BenchError> {
    Ok(business(tx, n).await?)
}

/// The key that a call has in both.
pub(crate) fn key(n: u64) -> String {
    format!("order:merchant-7:{n}")
}

pub(crate) async fn first(pool: &Pool, n: u64) -> Result<(), Failure> {
    let mut tx = pool.begin().await?;
    create(&mut tx, n | 1 << 62).await?;
    tx.commit().await?;
    Ok(())
}

/// Makes one of the records that replays are asked for, for both operations.
pub(crate) async fn recorded(pool: &Pool, n: u64) -> Result<(), Failure> {
    let mut tx = pool.begin().await?;
    create(&mut tx, n).await?;
    tx.commit().await?;
    create_owned(pool, n).await?;
    Ok(())
}

pub(crate) async fn replay(pool: &Pool, n: u64) -> Result<(), Failure> {
    let mut tx = pool.begin().await?;
    create(&mut tx, n % RECORDED).await?;
    tx.commit().await?;
    Ok(())
}

pub(crate) async fn owned_first(pool: &Pool, n: u64) -> Result<(), Failure> {
    create_owned(pool, n | 1 << 62).await?;
    Ok(())
}

pub(crate) async fn owned_replay(pool: &Pool, n: u64) -> Result<(), Failure> {
    create_owned(pool, (n ^ (n >> 32)) % RECORDED).await?;
    Ok(())
}

pub(crate) async fn mixed<const PERCENT: u64>(pool: &Pool, n: u64) -> Result<(), Failure> {
    create_owned(
        pool,
        repeats::<PERCENT>(n, RECORDED).unwrap_or(n | 1 << 62 | PERCENT << 48),
    )
    .await?;
    Ok(())
}
