//! The same protocol, statement by statement, and the business transaction without it.

use std::hash::{DefaultHasher, Hash, Hasher};

use idem_benches::repeats;
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, MySqlConnection, MySqlPool, Row as _};
use uuid::Uuid;

use super::RECORDED;

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(crate) struct Order {
    pub(crate) id: i64,
    pub(crate) merchant: String,
    pub(crate) cents: i64,
    pub(crate) note: String,
}

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The business: one order row, one account update, about 200 bytes of answer.
pub(crate) async fn business(conn: &mut MySqlConnection, n: u64) -> Result<Order, sqlx::Error> {
    let id = i64::try_from(n & 0x7fff_ffff_ffff_ffff).unwrap_or(0);
    // Random as order numbers are, so that the index is not appended to.
    let unique = id.wrapping_mul(0x5851_f42d_4c95_7f2d);
    sqlx::query("INSERT INTO bench_order (id, merchant, cents) VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE id = id")
        .bind(unique)
        .bind("merchant-7")
        .bind(1299_i64)
        .execute(&mut *conn)
        .await?;
    sqlx::query("UPDATE bench_account SET balance = balance + ? WHERE id = ?")
        .bind(1299_i64)
        .bind(i32::try_from(unique.rem_euclid(10_000)).unwrap_or(0))
        .execute(&mut *conn)
        .await?;
    Ok(Order {
        id,
        merchant: "merchant-7".into(),
        cents: 1299,
        note: "x".repeat(140),
    })
}

pub(crate) async fn bare(pool: &MySqlPool, n: u64) -> Result<(), Failure> {
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

const INSERT: &str = "SET STATEMENT innodb_lock_wait_timeout=0 FOR \
     INSERT INTO idem_record (scope, key_text, fingerprint, owner, id, created_at) \
     VALUES (?, ?, ?, ?, ?, IF(@@in_transaction, UTC_TIMESTAMP(3), NULL))";
const READ: &str = "SELECT fingerprint, owner, outcome, \
     TIMESTAMPDIFF(MICROSECOND, '1970-01-01', completed_at) DIV 1000, \
     TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(3), expires_at) FROM idem_record WHERE id = ?";
const COMPLETE: &str = "UPDATE idem_record SET outcome = ?, completed_at = UTC_TIMESTAMP(3), \
     expires_at = UTC_TIMESTAMP(3) + INTERVAL ? MICROSECOND \
     WHERE id = ? AND owner = ? AND outcome IS NULL AND @@in_transaction = 1";
/// Duplicate entry.
const DUPLICATE: &str = "23000";

async fn insert(conn: &mut MySqlConnection, id: Uuid, n: u64) -> Result<bool, sqlx::Error> {
    let key = format!("order:merchant-7:{n}");
    let done = sqlx::query(INSERT)
        .bind("bench.by_hand")
        .bind(key)
        .bind([7u8; 17].as_slice())
        .bind(id)
        .bind(id)
        .execute(conn)
        .await;
    match done {
        Ok(_) => Ok(true),
        Err(error) => match error.as_database_error() {
            Some(refused) if refused.code().as_deref() == Some(DUPLICATE) => Ok(false),
            _ => Err(error),
        },
    }
}

pub(crate) async fn first(pool: &MySqlPool, n: u64) -> Result<(), Failure> {
    let id = id("first", n);
    let mut tx = pool.begin().await?;
    if insert(&mut tx, id, n).await? {
        let order = business(&mut tx, n).await?;
        sqlx::query(COMPLETE)
            .bind(serde_json::to_vec(&order)?)
            .bind(604_800_000_000_i64)
            .bind(id)
            .bind(id)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(())
}

pub(crate) async fn replay(pool: &MySqlPool, n: u64) -> Result<(), Failure> {
    let id = recorded(n);
    let mut tx = pool.begin().await?;
    if !insert(&mut tx, id, n).await? {
        let row = sqlx::query(AssertSqlSafe(format!("{READ} LOCK IN SHARE MODE")))
            .bind(id)
            .fetch_one(&mut *tx)
            .await?;
        let outcome: &[u8] = row.try_get(2)?;
        let _: Order = serde_json::from_slice(&outcome[7..])?;
    }
    tx.commit().await?;
    Ok(())
}

pub(crate) async fn select(pool: &MySqlPool, n: u64) -> Result<(), Failure> {
    let row = sqlx::query(READ).bind(recorded(n)).fetch_one(pool).await?;
    let outcome: &[u8] = row.try_get(2)?;
    let _: Order = serde_json::from_slice(&outcome[7..])?;
    Ok(())
}

pub(crate) async fn mixed<const PERCENT: u64>(pool: &MySqlPool, n: u64) -> Result<(), Failure> {
    match repeats::<PERCENT>(n, RECORDED) {
        Some(old) => select(pool, old).await,
        None => first(pool, n ^ (PERCENT << 56)).await,
    }
}

/// A record that the attribute made.
fn recorded(n: u64) -> Uuid {
    let key = super::attribute::key(n % super::RECORDED);
    Uuid::from_bytes(*idem::key::RecordId::new("", "bench.mysql.owned", &[], &key).as_bytes())
}
