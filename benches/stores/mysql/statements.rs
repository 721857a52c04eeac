//! What a call sends to MySQL or MariaDB.

use sqlx::{MySqlConnection, MySqlPool};
use uuid::Uuid;

use super::sql::Order;

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
    Ok(Order::new(id))
}

macro_rules! read {
    () => {
        "SELECT fingerprint, owner, outcome, \
     TIMESTAMPDIFF(MICROSECOND, '1970-01-01', completed_at) DIV 1000, \
     TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(3), expires_at) FROM idem_record WHERE id = ?"
    };
}

const INSERT: &str = "SET STATEMENT innodb_lock_wait_timeout=0 FOR \
     INSERT INTO idem_record (scope, key_text, fingerprint, owner, id, created_at) \
     VALUES (?, ?, ?, ?, ?, IF(@@in_transaction, UTC_TIMESTAMP(3), NULL))";
pub(super) const READ: &str = read!();
pub(super) const READ_HELD: &str = concat!(read!(), " LOCK IN SHARE MODE");
const COMPLETE: &str = "UPDATE idem_record SET outcome = ?, completed_at = UTC_TIMESTAMP(3), \
     expires_at = UTC_TIMESTAMP(3) + INTERVAL ? MICROSECOND \
     WHERE id = ? AND owner = ? AND outcome IS NULL AND @@in_transaction = 1";
/// Duplicate entry.
const DUPLICATE: &str = "23000";

pub(crate) async fn insert(
    conn: &mut MySqlConnection,
    id: Uuid,
    key: &str,
) -> Result<bool, sqlx::Error> {
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

pub(crate) async fn complete(
    conn: &mut MySqlConnection,
    id: Uuid,
    outcome: Vec<u8>,
) -> Result<(), sqlx::Error> {
    sqlx::query(COMPLETE)
        .bind(outcome)
        .bind(604_800_000_000_i64)
        .bind(id)
        .bind(id)
        .execute(conn)
        .await
        .map(drop)
}

pub(crate) async fn prepare(pool: &MySqlPool) {
    let drop = "DROP TABLE IF EXISTS bench_order, bench_account, idem_record, idem_record_schema";
    sqlx::query(drop).execute(pool).await.expect("clean tables");
    for table in [
        "CREATE TABLE bench_order (id bigint PRIMARY KEY, merchant varchar(64) NOT NULL, \
         cents bigint NOT NULL) ENGINE = InnoDB",
        "CREATE TABLE bench_account (id int PRIMARY KEY, balance bigint NOT NULL) ENGINE = InnoDB",
        "INSERT INTO bench_account SELECT seq, 0 FROM seq_0_to_9999",
    ] {
        sqlx::query(table).execute(pool).await.expect("tables");
    }
    idem::store::mysql::migrate(pool)
        .await
        .expect("the record table");
}
