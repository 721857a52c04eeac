//! SQLite.
//!
//! There is one writer at a time, so a duplicate waits for the database, not for the key: begin
//! transactions that will call an idempotent function with `BEGIN IMMEDIATE`
//! (`pool.begin_with("BEGIN IMMEDIATE")`) and set a `busy_timeout`. A transaction that has read
//! before it writes cannot be repaired once another one has committed: it gets
//! [`RetryTransaction`](crate::ErrorKind::RetryTransaction) at once. `foreign_keys` must stay on, as sqlx sets it.

mod codes;
pub(crate) mod setup;
mod watched;

use std::borrow::Cow;
use std::sync::OnceLock;
use std::time::Instant;

use bytes::Bytes;
use sqlx::error::DatabaseError;
use sqlx::sqlite::{Sqlite, SqliteError, SqliteRow};
use sqlx::{
    Connection as _, Pool, Row as _, SqlSafeStr as _, SqlStr, SqliteConnection, Transaction,
};

use super::cause::Meaning;
use super::dialect::{
    Dialect, ENDS, Inserted, NewRow, Row, Statements, TimeLeft, Times, sealed::Sealed,
    tombstone_hex,
};
use super::schema::statement;
use crate::clock::Moment;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;
use crate::protocol::Owner;
use crate::store::Until;

pub use setup::{check, migrate, migrations};

impl Sealed for Sqlite {}

/// SQLite has no time type: epoch milliseconds by the database's clock.
pub(super) const NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

impl Dialect for Sqlite {
    const INDEX: usize = 1;

    fn statements(table: &str) -> Statements {
        let sql = |template: &str| {
            let filled = template.replace("{now}", NOW).replace("{ends}", ENDS);
            statement(&filled, table)
        };
        let read = sql("SELECT fingerprint, owner, outcome, completed_at, \
             expires_at - {now}, known_until - {now} FROM {table} WHERE id = ?1");
        let insert = sql(
            "INSERT INTO {table} (id, scope, key_text, fingerprint, owner, incomplete, created_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, 0, {now}) ON CONFLICT DO NOTHING",
        );
        // With a shared cache a connection may read what another one has not committed.
        let committed = "NOT (SELECT read_uncommitted FROM pragma_read_uncommitted)";
        let peek = sql(&format!(
            "SELECT fingerprint, owner, outcome, completed_at, expires_at - {{now}}, \
             known_until - {{now}} FROM {{table}} WHERE id = ?1 AND {committed}"
        ));
        let status = sql(&format!(
            "SELECT fingerprint, owner, outcome, completed_at, expires_at - {{now}}, \
             known_until - {{now}}, created_at FROM {{table}} WHERE id = ?1 AND {committed}"
        ));
        let take_over = sql(
            "UPDATE {table} SET scope = ?2, key_text = ?3, fingerprint = ?4, owner = ?5, \
             incomplete = 0, outcome = NULL, created_at = {now}, completed_at = NULL, \
             expires_at = NULL, known_until = NULL \
             WHERE id = ?1 AND {ends} <= {now}",
        );
        Statements {
            insert_blocking: insert.clone(),
            insert,
            peek,
            holder: status.clone(),
            status,
            read,
            take_over_blocking: take_over.clone(),
            take_over,
            complete: sql(
                "UPDATE {table} SET outcome = ?3, incomplete = NULL, completed_at = {now}, \
                 expires_at = {now} + ?4, known_until = {now} + ?5 \
                 WHERE id = ?1 AND owner = ?2 AND incomplete IS NOT NULL",
            ),
            release: sql(
                "DELETE FROM {table} WHERE id = ?1 AND owner = ?2 AND incomplete IS NOT NULL",
            ),
            forget: sql("DELETE FROM {table} WHERE id = ?1 AND incomplete IS NULL \
                 AND coalesce({ends} > {now}, 1)"),
            purge: sql("DELETE FROM {table} WHERE id IN (SELECT id FROM {table} \
                 WHERE expires_at <= {now} AND incomplete IS NULL \
                 AND {ends} <= {now} LIMIT ?1)"),
            bury: sql(&format!(
                "UPDATE {{table}} SET outcome = X'{}', expires_at = known_until \
                 WHERE id IN (SELECT id FROM {{table}} WHERE expires_at <= {{now}} \
                 AND known_until > {{now}} AND incomplete IS NULL LIMIT ?1)",
                tombstone_hex(),
            )),
            wait: String::new(),
            wait_is_scoped: OnceLock::new(),
        }
    }

    async fn insert(
        conn: &mut SqliteConnection,
        statements: &Statements,
        row: NewRow<'_>,
    ) -> Result<Inserted, sqlx::Error> {
        let ours = reserve(conn, &statements.insert, row).await?;
        Ok(if ours {
            Inserted::Ours
        } else {
            Inserted::Taken
        })
    }

    async fn read(
        conn: &mut SqliteConnection,
        sql: &SqlStr,
        id: RecordId,
    ) -> Result<Option<Row>, sqlx::Error> {
        let asked_at = Instant::now();
        sqlx::query(sql.clone())
            .bind(id.as_bytes().to_vec())
            .fetch_optional(conn)
            .await?
            .map(|row| from_row(&row, asked_at))
            .transpose()
    }

    async fn take_over(
        conn: &mut SqliteConnection,
        statements: &Statements,
        row: NewRow<'_>,
    ) -> Result<bool, sqlx::Error> {
        reserve(conn, &statements.take_over, row).await
    }

    async fn complete(
        conn: &mut SqliteConnection,
        statements: &Statements,
        id: RecordId,
        owner: Owner,
        outcome: &[u8],
        times: Times,
    ) -> Result<u64, sqlx::Error> {
        sqlx::query(statements.complete.clone())
            .bind(id.as_bytes().to_vec())
            .bind(owner.as_bytes().to_vec())
            .bind(outcome.to_vec())
            .bind(times.keep)
            .bind(times.known)
            .execute(conn)
            .await
            .map(|done| done.rows_affected())
    }

    async fn release(
        conn: &mut SqliteConnection,
        statements: &Statements,
        id: RecordId,
        owner: Owner,
    ) -> Result<u64, sqlx::Error> {
        sqlx::query(statements.release.clone())
            .bind(id.as_bytes().to_vec())
            .bind(owner.as_bytes().to_vec())
            .execute(conn)
            .await
            .map(|done| done.rows_affected())
    }

    async fn savepoint(conn: &mut SqliteConnection, sql: &'static str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(sql).execute(conn).await.map(|_| ())
    }

    async fn forget(
        conn: &mut SqliteConnection,
        statements: &Statements,
        id: RecordId,
    ) -> Result<u64, sqlx::Error> {
        let forget = sqlx::query(statements.forget.clone()).bind(id.as_bytes().to_vec());
        forget.execute(conn).await.map(|done| done.rows_affected())
    }

    async fn purge(
        conn: &mut SqliteConnection,
        statements: &Statements,
        limit: i64,
    ) -> Result<u64, sqlx::Error> {
        let purge = sqlx::query(statements.purge.clone()).bind(limit);
        purge.execute(conn).await.map(|done| done.rows_affected())
    }

    async fn bury(
        conn: &mut SqliteConnection,
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
        let statement = statement.unwrap_or_else(|| "BEGIN IMMEDIATE".into_sql_str());
        loop {
            let conn = pool.acquire().await?;
            // A body that ended its transaction by itself left a connection that can neither roll back
            // nor begin, and the pool would hand it out again.
            if conn.is_in_transaction() {
                drop(conn.detach());
                continue;
            }
            return Transaction::begin(conn, Some(statement)).await;
        }
    }

    // A COMMIT without a transaction is an error here.
    async fn is_alive(_conn: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
        Ok(true)
    }

    fn code(error: &dyn DatabaseError) -> Option<Cow<'_, str>> {
        error.try_downcast_ref::<SqliteError>()?;
        error.code()
    }

    const CODE: &'static str = "code";

    fn meaning(code: &str) -> Meaning {
        codes::meaning(code)
    }

    fn refuses_commit(code: &str) -> bool {
        codes::refuses_commit(code)
    }
}

async fn reserve(
    conn: &mut SqliteConnection,
    sql: &SqlStr,
    row: NewRow<'_>,
) -> Result<bool, sqlx::Error> {
    let done = sqlx::query(sql.clone())
        .bind(row.id.as_bytes().to_vec())
        .bind(row.scope.to_owned())
        .bind(row.key_text.map(str::to_owned))
        .bind(row.fingerprint.as_bytes().to_vec())
        .bind(row.owner.as_bytes().to_vec())
        .execute(conn)
        .await?;
    Ok(done.rows_affected() == 1)
}

fn from_row(row: &SqliteRow, asked_at: Instant) -> Result<Row, sqlx::Error> {
    fn sized<const N: usize>(bytes: &[u8]) -> Result<[u8; N], sqlx::Error> {
        bytes
            .try_into()
            .map_err(|e| sqlx::Error::Decode(Box::new(e)))
    }
    let completed_at: Option<i64> = row.try_get(3)?;
    let micros = |millis: Option<i64>| millis.map(|millis| millis.saturating_mul(1000));
    let time = TimeLeft {
        outcome: micros(row.try_get(4)?),
        key: micros(row.try_get(5)?),
    };
    let outcome = row.try_get::<Option<Vec<u8>>, _>(2)?;
    let is_gone = time.is_gone(outcome.as_deref());
    let owner = Owner::from_bytes(sized(row.try_get(1)?)?);
    Ok(Row {
        fingerprint: Fingerprint::from_bytes(sized(row.try_get(0)?)?),
        owner,
        outcome: outcome.map(Bytes::from),
        recorded_at: completed_at.map(|at| Moment::from_millis(u64::try_from(at).unwrap_or(0))),
        is_over: time.is_over(),
        is_gone,
        until: Until::left_micros(asked_at, time.outcome),
        ends: Until::left_micros(asked_at, time.ends()),
        // There is no telling a row of this very transaction from one committed before it, but rows
        // of other processes are committed.
        committed: !owner.is_of_this_process(),
    })
}
