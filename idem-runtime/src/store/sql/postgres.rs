//! Postgres.
//!
//! The reserving statement takes a transaction-level advisory lock without waiting and inserts only
//! under it, so a duplicate of a running call learns so at once. One that has asked for a second also
//! waits inside the database, where two transactions that wait for each other are found.
//! See `docs/protocol.md`.

mod codes;
pub(crate) mod setup;
mod waiting;
mod watched;

use std::borrow::Cow;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sqlx::error::DatabaseError;
use sqlx::postgres::{PgDatabaseError, PgRow, Postgres};
use sqlx::{PgConnection, Pool, Row as _, SqlStr, Transaction, ValueRef as _};
use uuid::Uuid;

use super::cause::Meaning;
use super::dialect::{
    Dialect, ENDS, Inserted, NewRow, Row, Statements, TimeLeft, Times, sealed::Sealed,
    tombstone_hex,
};
use super::schema::statement;
use crate::clock::Moment;
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;
use crate::protocol::Owner;
use crate::store::Until;

pub use setup::{check, migrate, migrations};

impl Sealed for Postgres {}

/// The advisory lock of a record: by its id and its table, as the search path finds it, since the
/// same record in another table is another one.
const LOCK: &str = "$6 # '{table}'::regclass::oid::int8";

impl Dialect for Postgres {
    const INDEX: usize = 0;

    fn statements(table: &str) -> Statements {
        let sql = |template: &str| {
            let filled = template.replace("{ends}", ENDS).replace("{lock}", LOCK);
            statement(&filled, table)
        };
        let insert = |condition: &str| {
            sql(&format!(
                "INSERT INTO {{table}} (id, scope, key_text, fingerprint, owner, incomplete) \
                 SELECT $1, $2, $3, $4, $5, 0 WHERE {condition} ON CONFLICT DO NOTHING"
            ))
        };
        let take_over = |condition: &str| {
            sql(&format!(
                "UPDATE {{table}} SET scope = $2, key_text = $3, fingerprint = $4, owner = $5, \
                 incomplete = 0, outcome = NULL, created_at = clock_timestamp(), \
                 completed_at = NULL, expires_at = NULL, known_until = NULL \
                 WHERE id = $1 AND {{ends}} <= clock_timestamp() AND {condition}"
            ))
        };
        let locked = "pg_try_advisory_xact_lock({lock})";
        let peek = sql("SELECT fingerprint, owner, outcome, completed_at, \
             expires_at, known_until, clock_timestamp(), true FROM {table} WHERE id = $1");
        let status = sql("SELECT fingerprint, owner, outcome, completed_at, \
             expires_at, known_until, clock_timestamp(), true, created_at \
             FROM {table} WHERE id = $1");
        Statements {
            insert: insert(locked),
            insert_blocking: insert("$6::int8 IS NOT NULL"),
            // A row that is older than this transaction's number (or than the next number, while it
            // has none) was written by another one: it is committed.
            read: sql("SELECT fingerprint, owner, outcome, completed_at, \
                 expires_at, known_until, clock_timestamp(), age(xmin) > 0 FROM {table} WHERE id = $1"),
            peek,
            status,
            holder: sql(watched::HOLDER),
            take_over: take_over(locked),
            take_over_blocking: take_over("$6::int8 IS NOT NULL"),
            complete: sql("UPDATE {table} SET outcome = $3, incomplete = NULL, \
                 completed_at = clock_timestamp(), \
                 expires_at = clock_timestamp() + $4 * interval '1 millisecond', \
                 known_until = clock_timestamp() + $5 * interval '1 millisecond' \
                 WHERE id = $1 AND owner = $2 AND incomplete IS NOT NULL"),
            release: sql(
                "DELETE FROM {table} WHERE id = $1 AND owner = $2 AND incomplete IS NOT NULL",
            ),
            // Under the lock, if it can be had: a duplicate learns at once that somebody is at the
            // record, and does not wait in the database for the end of this transaction.
            forget: sql("DELETE FROM {table} WHERE id = $1 AND incomplete IS NULL \
                 AND coalesce({ends} > clock_timestamp(), true) \
                 AND pg_try_advisory_xact_lock(($2 # '{table}'::regclass::oid::int8)) IS NOT NULL"),
            purge: sql("DELETE FROM {table} WHERE id IN (SELECT id FROM {table} \
                 WHERE expires_at <= clock_timestamp() AND incomplete IS NULL \
                 AND {ends} <= clock_timestamp() LIMIT $1 FOR UPDATE SKIP LOCKED)"),
            bury: sql(&format!(
                "UPDATE {{table}} SET outcome = decode('{}', 'hex'), expires_at = known_until \
                 WHERE id IN (SELECT id FROM {{table}} \
                 WHERE expires_at <= clock_timestamp() AND known_until > clock_timestamp() \
                 AND incomplete IS NULL LIMIT $1 FOR UPDATE SKIP LOCKED)",
                tombstone_hex(),
            )),
            wait: waiting::text(table),
            wait_is_scoped: OnceLock::new(),
        }
    }

    fn statements_without_locks(table: &str) -> Statements {
        let locked = Self::statements(table);
        let sql = |template: &str| statement(&template.replace("{ends}", ENDS), table);
        Statements {
            insert: locked.insert_blocking.clone(),
            take_over: locked.take_over_blocking.clone(),
            forget: sql("DELETE FROM {table} WHERE id = $1 AND incomplete IS NULL \
                 AND coalesce({ends} > clock_timestamp(), true) AND $2::int8 IS NOT NULL"),
            holder: sql(watched::NOBODY),
            ..locked
        }
    }

    async fn insert(
        conn: &mut PgConnection,
        statements: &Statements,
        row: NewRow<'_>,
    ) -> Result<Inserted, sqlx::Error> {
        let sql = match row.takes_lock {
            true => &statements.insert,
            false => &statements.insert_blocking,
        };
        let ours = reserve(conn, sql, row).await?;
        Ok(if ours {
            Inserted::Ours
        } else {
            Inserted::Taken
        })
    }

    async fn insert_waiting(
        conn: &mut PgConnection,
        statements: &Statements,
        row: NewRow<'_>,
        left: Duration,
    ) -> Result<Option<Inserted>, sqlx::Error> {
        if row.takes_lock && waiting::is_circle(conn, statements, row.id, left).await? {
            return Ok(None);
        }
        Self::insert(conn, statements, row).await.map(Some)
    }

    async fn read(
        conn: &mut PgConnection,
        sql: &SqlStr,
        id: RecordId,
    ) -> Result<Option<Row>, sqlx::Error> {
        let asked_at = Instant::now();
        let rows = sqlx::query(sql.clone())
            .bind(uuid(id))
            .fetch_all(conn)
            .await?;
        newest(&rows, |row| from_row(row, asked_at), |row| row)
    }

    async fn take_over(
        conn: &mut PgConnection,
        statements: &Statements,
        row: NewRow<'_>,
    ) -> Result<bool, sqlx::Error> {
        let sql = match row.takes_lock {
            true => &statements.take_over,
            false => &statements.take_over_blocking,
        };
        reserve(conn, sql, row).await
    }

    async fn complete(
        conn: &mut PgConnection,
        statements: &Statements,
        id: RecordId,
        owner: Owner,
        outcome: &[u8],
        times: Times,
    ) -> Result<u64, sqlx::Error> {
        sqlx::query(statements.complete.clone())
            .bind(uuid(id))
            .bind(Uuid::from_bytes(*owner.as_bytes()))
            .bind(outcome)
            .bind(times.keep)
            .bind(times.known)
            .execute(conn)
            .await
            .map(|done| done.rows_affected())
    }

    async fn release(
        conn: &mut PgConnection,
        statements: &Statements,
        id: RecordId,
        owner: Owner,
    ) -> Result<u64, sqlx::Error> {
        sqlx::query(statements.release.clone())
            .bind(uuid(id))
            .bind(Uuid::from_bytes(*owner.as_bytes()))
            .execute(conn)
            .await
            .map(|done| done.rows_affected())
    }

    async fn savepoint(conn: &mut PgConnection, sql: &'static str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(sql).execute(conn).await.map(|_| ())
    }

    async fn forget(
        conn: &mut PgConnection,
        statements: &Statements,
        id: RecordId,
    ) -> Result<u64, sqlx::Error> {
        let forget = sqlx::query(statements.forget.clone())
            .bind(uuid(id))
            .bind(id.lock_number());
        forget.execute(conn).await.map(|done| done.rows_affected())
    }

    async fn purge(
        conn: &mut PgConnection,
        statements: &Statements,
        limit: i64,
    ) -> Result<u64, sqlx::Error> {
        let purge = sqlx::query(statements.purge.clone()).bind(limit);
        purge.execute(conn).await.map(|done| done.rows_affected())
    }

    async fn bury(
        conn: &mut PgConnection,
        statements: &Statements,
        limit: i64,
    ) -> Result<u64, sqlx::Error> {
        let bury = sqlx::query(statements.bury.clone()).bind(limit);
        bury.execute(conn).await.map(|done| done.rows_affected())
    }

    async fn begin_with(
        pool: &Pool<Self>,
        statement: Option<SqlStr>,
    ) -> Result<Transaction<'static, Self>, sqlx::Error> {
        Transaction::begin(pool.acquire().await?, statement).await
    }

    // Set by the connection's options, the role or the database it is the same for all.
    async fn looks_elsewhere(
        conn: &mut PgConnection,
        _pool: &Pool<Self>,
    ) -> Result<bool, sqlx::Error> {
        sqlx::query_scalar("SELECT source = 'session' FROM pg_settings WHERE name = 'search_path'")
            .fetch_one(conn)
            .await
    }

    // A COMMIT of an aborted transaction rolls back and is answered as a success.
    async fn is_alive(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
        sqlx::query("SELECT 1").execute(conn).await.map(|_| true)
    }

    fn code(error: &dyn DatabaseError) -> Option<Cow<'_, str>> {
        error.try_downcast_ref::<PgDatabaseError>()?;
        error.code()
    }

    const CODE: &'static str = "SQLSTATE";

    fn meaning(code: &str) -> Meaning {
        codes::meaning(code)
    }

    fn refuses_commit(code: &str) -> bool {
        codes::refuses_commit(code)
    }
}

/// An older snapshot still shows a row that has been removed since, beside the transaction's own: the
/// newest counts, and one that is unfinished is newer than any outcome. Sorting here spares every
/// replay a sort in the database.
fn newest<T>(
    rows: &[PgRow],
    read: impl Fn(&PgRow) -> Result<T, sqlx::Error>,
    row: impl Fn(&T) -> &Row,
) -> Result<Option<T>, sqlx::Error> {
    let age = |of: &T| (row(of).outcome.is_none(), row(of).recorded_at);
    let mut newest: Option<T> = None;
    for found in rows {
        let found = read(found)?;
        if newest.as_ref().is_none_or(|kept| age(&found) > age(kept)) {
            newest = Some(found);
        }
    }
    Ok(newest)
}

fn uuid(id: RecordId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

async fn reserve(
    conn: &mut PgConnection,
    sql: &SqlStr,
    row: NewRow<'_>,
) -> Result<bool, sqlx::Error> {
    let done = sqlx::query(sql.clone())
        .bind(uuid(row.id))
        .bind(row.scope)
        .bind(row.key_text)
        .bind(row.fingerprint.as_bytes().as_slice())
        .bind(Uuid::from_bytes(*row.owner.as_bytes()))
        .bind(row.id.lock_number())
        .execute(conn)
        .await?;
    Ok(done.rows_affected() == 1)
}

fn from_row(row: &PgRow, asked_at: Instant) -> Result<Row, sqlx::Error> {
    let fingerprint: &[u8] = row.try_get(0)?;
    let owner: Uuid = row.try_get(1)?;
    let outcome: Option<&[u8]> = row.try_get(2)?;
    let now = micros(row, 6)?.unwrap_or_default();
    let left = |column| -> Result<Option<i64>, sqlx::Error> {
        Ok(micros(row, column)?.map(|end| end.saturating_sub(now)))
    };
    let time = TimeLeft {
        outcome: left(4)?,
        key: left(5)?,
    };
    Ok(Row {
        fingerprint: Fingerprint::from_bytes(
            fingerprint
                .try_into()
                .map_err(|e| sqlx::Error::Decode(Box::new(e)))?,
        ),
        owner: Owner::from_bytes(*owner.as_bytes()),
        outcome: outcome.map(Bytes::copy_from_slice),
        recorded_at: micros(row, 3)?.map(|at| {
            let millis = u64::try_from(at.div_euclid(1000));
            Moment::from_millis(millis.unwrap_or(0))
        }),
        is_over: time.is_over(),
        is_gone: time.is_gone(outcome),
        until: Until::left_micros(asked_at, time.outcome),
        ends: Until::left_micros(asked_at, time.ends()),
        committed: row.try_get(7)?,
    })
}

/// Microseconds since the Unix epoch. A `timestamptz` in the binary form counts them from 2000-01-01
/// UTC.
pub(super) fn micros(row: &PgRow, column: usize) -> Result<Option<i64>, sqlx::Error> {
    const Y2K: i64 = 946_684_800_000_000;
    let value = row.try_get_raw(column)?;
    if value.is_null() {
        return Ok(None);
    }
    let bytes = value.as_bytes().map_err(sqlx::Error::Decode)?;
    let micros = bytes
        .try_into()
        .map(i64::from_be_bytes)
        .map_err(|e| sqlx::Error::Decode(Box::new(e)))?;
    Ok(Some(micros.saturating_add(Y2K)))
}
