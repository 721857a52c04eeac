//! The same protocol, statement by statement, and the business transaction without it.

use std::hash::{DefaultHasher, Hash, Hasher};

use idem_benches::repeats;
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool, Row as _};
use uuid::Uuid;

use crate::RECORDED;

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(crate) struct Order {
    pub(crate) id: i64,
    pub(crate) merchant: String,
    pub(crate) cents: i64,
    pub(crate) note: String,
}

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The business: one order row, one account update, about 200 bytes of answer.
pub(crate) async fn business(conn: &mut PgConnection, n: u64) -> Result<Order, sqlx::Error> {
    let id = i64::try_from(n & 0x7fff_ffff_ffff_ffff).unwrap_or(0);
    // Random as order numbers are, so that the index is not appended to.
    let unique = id.wrapping_mul(0x5851_f42d_4c95_7f2d);
    sqlx::query(
        "INSERT INTO bench_order (id, merchant, cents) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
    )
    .bind(unique)
    .bind("merchant-7")
    .bind(1299_i64)
    .execute(&mut *conn)
    .await?;
    sqlx::query("UPDATE bench_account SET balance = balance + $2 WHERE id = $1")
        .bind(i32::try_from(unique.rem_euclid(10_000)).unwrap_or(0))
        .bind(1299_i64)
        .execute(&mut *conn)
        .await?;
    Ok(Order {
        id,
        merchant: "merchant-7".into(),
        cents: 1299,
        note: "x".repeat(140),
    })
}

pub(crate) async fn bare(pool: &PgPool, n: u64) -> Result<(), Failure> {
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

const INSERT: &str = "INSERT INTO idem_record (id, scope, key_text, fingerprint, owner, incomplete) \
     SELECT $1, $2, $3, $4, $5, 0 WHERE pg_try_advisory_xact_lock($6) ON CONFLICT DO NOTHING";
const READ: &str = "SELECT fingerprint, owner, outcome, completed_at, \
     expires_at, clock_timestamp() FROM idem_record WHERE id = $1";
const COMPLETE: &str = "UPDATE idem_record SET outcome = $3, incomplete = NULL, \
     completed_at = clock_timestamp(), expires_at = clock_timestamp() + $4 * interval '1 millisecond' \
     WHERE id = $1 AND owner = $2 AND incomplete IS NOT NULL";

async fn insert(conn: &mut PgConnection, id: Uuid, n: u64) -> Result<bool, sqlx::Error> {
    let key = format!("order:merchant-7:{n}");
    let done = sqlx::query(INSERT)
        .bind(id)
        .bind("bench.by_hand")
        .bind(key)
        .bind([7u8; 17].as_slice())
        .bind(id)
        .bind(id.as_u64_pair().0.cast_signed())
        .execute(conn)
        .await?;
    Ok(done.rows_affected() == 1)
}

pub(crate) async fn first(pool: &PgPool, n: u64) -> Result<(), Failure> {
    let id = id("first", n);
    let mut tx = pool.begin().await?;
    if insert(&mut tx, id, n).await? {
        let order = business(&mut tx, n).await?;
        sqlx::query(COMPLETE)
            .bind(id)
            .bind(id)
            .bind(serde_json::to_vec(&order)?)
            .bind(604_800_000_i64)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(())
}

pub(crate) async fn replay(pool: &PgPool, n: u64) -> Result<(), Failure> {
    let id = recorded(n);
    let mut tx = pool.begin().await?;
    if !insert(&mut tx, id, n).await? {
        let row = sqlx::query(READ).bind(id).fetch_one(&mut *tx).await?;
        let outcome: &[u8] = row.try_get(2)?;
        let _: Order = serde_json::from_slice(&outcome[7..])?;
    }
    tx.commit().await?;
    Ok(())
}

pub(crate) async fn select(pool: &PgPool, n: u64) -> Result<(), Failure> {
    let row = sqlx::query(READ).bind(recorded(n)).fetch_one(pool).await?;
    let outcome: &[u8] = row.try_get(2)?;
    let _: Order = serde_json::from_slice(&outcome[7..])?;
    Ok(())
}

pub(crate) async fn mixed<const PERCENT: u64>(pool: &PgPool, n: u64) -> Result<(), Failure> {
    match repeats::<PERCENT>(n, RECORDED) {
        Some(old) => select(pool, old).await,
        None => first(pool, n ^ (PERCENT << 56)).await,
    }
}

/// A record that the attribute made.
fn recorded(n: u64) -> Uuid {
    let key = crate::attribute::key(n % crate::RECORDED);
    Uuid::from_bytes(*idem::key::RecordId::new("", "bench.owned", &[], &key).as_bytes())
}
