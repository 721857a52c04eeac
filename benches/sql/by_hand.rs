//! The same protocol, statement by statement, and the business transaction without it.

use std::hash::{DefaultHasher, Hash, Hasher};

use idem_benches::repeats;
use sqlx::Row as _;
use uuid::Uuid;

use super::statements::{READ, READ_HELD, complete, insert};
use super::{Failure, Order, Pool, RECORDED, attribute, business};

pub(crate) async fn bare(pool: &Pool, n: u64) -> Result<(), Failure> {
    let mut tx = pool.begin().await?;
    business(&mut tx, n).await?;
    tx.commit().await?;
    Ok(())
}

fn id(scope: &str, n: u64) -> Uuid {
    let mut hash = DefaultHasher::new();
    (scope, n).hash(&mut hash);
    let half = hash.finish();
    Uuid::from_u64_pair(half, half.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

pub(crate) async fn first(pool: &Pool, n: u64) -> Result<(), Failure> {
    let id = id("first", n);
    let mut tx = pool.begin().await?;
    if insert(&mut tx, id, &attribute::key(n)).await? {
        let order = business(&mut tx, n).await?;
        complete(&mut tx, id, serde_json::to_vec(&order)?).await?;
    }
    tx.commit().await?;
    Ok(())
}

pub(crate) async fn replay(pool: &Pool, n: u64) -> Result<(), Failure> {
    let id = recorded(n);
    let mut tx = pool.begin().await?;
    if !insert(&mut tx, id, &attribute::key(n)).await? {
        let row = sqlx::query(READ_HELD).bind(id).fetch_one(&mut *tx).await?;
        let outcome: &[u8] = row.try_get(2)?;
        let _: Order = serde_json::from_slice(&outcome[7..])?;
    }
    tx.commit().await?;
    Ok(())
}

pub(crate) async fn select(pool: &Pool, n: u64) -> Result<(), Failure> {
    let row = sqlx::query(READ).bind(recorded(n)).fetch_one(pool).await?;
    let outcome: &[u8] = row.try_get(2)?;
    let _: Order = serde_json::from_slice(&outcome[7..])?;
    Ok(())
}

pub(crate) async fn mixed<const PERCENT: u64>(pool: &Pool, n: u64) -> Result<(), Failure> {
    match repeats::<PERCENT>(n, RECORDED) {
        Some(old) => select(pool, old).await,
        None => first(pool, n ^ (PERCENT << 56)).await,
    }
}

/// A record that the attribute made.
fn recorded(n: u64) -> Uuid {
    let key = attribute::key(n % RECORDED);
    Uuid::from_bytes(*idem::key::RecordId::new("", "bench.owned", &[], &key).as_bytes())
}
