//! What a call sends to Postgres.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::sql::Order;

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
    Ok(Order::new(id))
}

const INSERT: &str = "INSERT INTO idem_record (id, scope, key_text, fingerprint, owner, incomplete) \
     SELECT $1, $2, $3, $4, $5, 0 WHERE pg_try_advisory_xact_lock($6) ON CONFLICT DO NOTHING";
pub(super) const READ: &str = "SELECT fingerprint, owner, outcome, completed_at, \
     expires_at, clock_timestamp() FROM idem_record WHERE id = $1";
pub(super) const READ_HELD: &str = READ;
const COMPLETE: &str = "UPDATE idem_record SET outcome = $3, incomplete = NULL, \
     completed_at = clock_timestamp(), expires_at = clock_timestamp() + $4 * interval '1 millisecond' \
     WHERE id = $1 AND owner = $2 AND incomplete IS NOT NULL";

pub(crate) async fn insert(
    conn: &mut PgConnection,
    id: Uuid,
    key: &str,
) -> Result<bool, sqlx::Error> {
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

pub(crate) async fn complete(
    conn: &mut PgConnection,
    id: Uuid,
    outcome: Vec<u8>,
) -> Result<(), sqlx::Error> {
    sqlx::query(COMPLETE)
        .bind(id)
        .bind(id)
        .bind(outcome)
        .bind(604_800_000_i64)
        .execute(conn)
        .await
        .map(drop)
}

pub(crate) async fn prepare(pool: &PgPool) {
    let drop = "DROP TABLE IF EXISTS bench_order, bench_account, idem_record, idem_record_never, idem_record_schema";
    sqlx::query(drop).execute(pool).await.expect("clean tables");
    for table in [
        "CREATE TABLE bench_order (id bigint PRIMARY KEY, merchant text NOT NULL, cents bigint NOT NULL)",
        "CREATE TABLE bench_account (id int PRIMARY KEY, balance bigint NOT NULL)",
        "INSERT INTO bench_account SELECT n, 0 FROM generate_series(0, 9999) n",
    ] {
        sqlx::query(table).execute(pool).await.expect("tables");
    }
    idem::store::postgres::migrate(pool)
        .await
        .expect("the record table");
}
