//! SQLite.
//!
//! There is one writer at a time, so a duplicate waits for the database, not for the key: begin
//! transactions that will call an idempotent function with `BEGIN IMMEDIATE`
//! (`pool.begin_with("BEGIN IMMEDIATE")`) and set a `busy_timeout`. A transaction that has read
//! before it writes cannot be repaired once another one has committed: it gets
//! [`ErrorKind::RetryTransaction`] at once. `foreign_keys` must stay on, as sqlx sets it.

use std::sync::OnceLock;

use bytes::Bytes;
use sqlx::sqlite::{Sqlite, SqliteRow};
use sqlx::{Connection as _, Executor as _, Pool, Row as _, SqlStr, SqliteConnection, Transaction};

use super::dialect::{Dialect, Inserted, NewRow, Row, Statements, classify, sealed::Sealed};
use super::handle::{OwnPool, Records};
use super::schema::{Migration, fill, not_empty, statement, unusable};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;
use crate::protocol::Owner;

impl Sealed for Sqlite {}

/// SQLite has no time type: epoch milliseconds by the database's clock.
const NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

impl Dialect for Sqlite {
    const INDEX: usize = 1;

    fn statements(table: &str) -> Statements {
        let sql = |template: &str| statement(&template.replace("{now}", NOW), table);
        let read = sql("SELECT fingerprint, owner, outcome, completed_at, \
             coalesce(expires_at <= {now}, 0) FROM {table} WHERE id = ?1");
        Statements {
            insert: sql(
                "INSERT INTO {table} (id, scope, key_text, fingerprint, owner, incomplete, created_at) \
                 VALUES (?1, ?2, ?3, ?4, ?5, 0, {now}) ON CONFLICT DO NOTHING",
            ),
            peek: read.clone(),
            read,
            take_over: sql(
                "UPDATE {table} SET scope = ?2, key_text = ?3, fingerprint = ?4, owner = ?5, \
                 incomplete = 0, outcome = NULL, created_at = {now}, completed_at = NULL, \
                 expires_at = NULL WHERE id = ?1 AND expires_at <= {now}",
            ),
            complete: sql(
                "UPDATE {table} SET outcome = ?3, incomplete = NULL, completed_at = {now}, \
                 expires_at = {now} + ?4 WHERE id = ?1 AND owner = ?2 AND incomplete IS NOT NULL",
            ),
            release: sql(
                "DELETE FROM {table} WHERE id = ?1 AND owner = ?2 AND incomplete IS NOT NULL",
            ),
            forget: sql("DELETE FROM {table} WHERE id = ?1 AND incomplete IS NULL \
                 AND coalesce(expires_at > {now}, 1)"),
            purge: sql("DELETE FROM {table} WHERE id IN (SELECT id FROM {table} \
                 WHERE expires_at <= {now} AND incomplete IS NULL LIMIT ?1)"),
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
        sqlx::query(sql.clone())
            .bind(id.as_bytes().to_vec())
            .fetch_optional(conn)
            .await?
            .map(|row| from_row(&row))
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
        keep_millis: Option<i64>,
    ) -> Result<u64, sqlx::Error> {
        sqlx::query(statements.complete.clone())
            .bind(id.as_bytes().to_vec())
            .bind(owner.as_bytes().to_vec())
            .bind(outcome.to_vec())
            .bind(keep_millis)
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

    async fn begin(pool: &Pool<Self>) -> Result<Transaction<'static, Self>, sqlx::Error> {
        pool.begin_with("BEGIN IMMEDIATE").await
    }

    fn kind_of_code(code: &str) -> ErrorKind {
        // The low byte is the primary code: 5 busy, 6 locked, 1 no such table or column.
        match code.parse::<u32>().map(|code| code & 0xff) {
            Ok(5 | 6) => ErrorKind::RetryTransaction,
            Ok(1) => ErrorKind::Schema,
            _ => ErrorKind::StoreUnavailable,
        }
    }

    fn refuses_commit(code: &str) -> bool {
        // busy, locked, constraint; a disk that is full or fails says nothing.
        matches!(code.parse::<u32>().map(|code| code & 0xff), Ok(5 | 6 | 19))
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

fn from_row(row: &SqliteRow) -> Result<Row, sqlx::Error> {
    fn sized<const N: usize>(bytes: &[u8]) -> Result<[u8; N], sqlx::Error> {
        bytes
            .try_into()
            .map_err(|e| sqlx::Error::Decode(Box::new(e)))
    }
    let completed_at: Option<i64> = row.try_get(3)?;
    Ok(Row {
        fingerprint: Fingerprint::from_bytes(sized(row.try_get(0)?)?),
        owner: Owner::from_bytes(sized(row.try_get(1)?)?),
        outcome: row.try_get::<Option<Vec<u8>>, _>(2)?.map(Bytes::from),
        recorded_at: completed_at.map(|at| Moment::from_millis(u64::try_from(at).unwrap_or(0))),
        is_over: row.try_get(4)?,
    })
}

/// The schema's steps, for the table `idem_record` or another one.
#[must_use]
pub fn migrations(records: &Records) -> Vec<Migration> {
    vec![Migration {
        version: 1,
        name: "record",
        sql: fill(
            include_str!("migrations/sqlite/0001_record.sql"),
            records.table(),
        ),
    }]
}

/// Creates or updates the table `idem_record`. Safe to run in many processes at once.
///
/// # Errors
/// The database cannot be used, or a table of that name is there that is not ours.
pub async fn migrate(pool: &impl OwnPool<Db = Sqlite>) -> Result<(), Error> {
    let records = pool.records();
    let table = records.table();
    let mut conn = pool.pool().acquire().await.map_err(classify::<Sqlite>)?;
    let mut tx = conn
        .begin_with("BEGIN IMMEDIATE")
        .await
        .map_err(classify::<Sqlite>)?;
    let run = async {
        let versions =
            "CREATE TABLE IF NOT EXISTS {versions} (version INTEGER PRIMARY KEY NOT NULL) STRICT";
        tx.execute(statement(versions, table)).await?;
        let read = statement("SELECT coalesce(max(version), 0) FROM {versions}", table);
        let at: i32 = sqlx::query_scalar(read).fetch_one(&mut *tx).await?;
        for step in migrations(records)
            .into_iter()
            .filter(|step| step.version > at)
        {
            sqlx::raw_sql(sqlx::AssertSqlSafe(step.sql))
                .execute(&mut *tx)
                .await?;
            let note = statement("INSERT INTO {versions} (version) VALUES (?1)", table);
            sqlx::query(note)
                .bind(step.version)
                .execute(&mut *tx)
                .await?;
        }
        Ok(())
    };
    match run.await {
        Ok(()) => tx.commit().await.map_err(classify::<Sqlite>),
        Err(e) => {
            // The connection goes back clean even if this fails: the pool checks it.
            let _ = tx.rollback().await;
            Err(classify::<Sqlite>(e)
                .detail("the schema could not be created; nothing was changed"))
        }
    }
}

/// Checks the schema: the version, the columns, and that the connection refuses to commit an
/// unfinished reservation (`foreign_keys`).
///
/// # Errors
/// [`ErrorKind::Schema`] with what is wrong; or the database cannot be used.
pub async fn check(pool: &impl OwnPool<Db = Sqlite>) -> Result<(), Error> {
    let records = pool.records();
    let table = records.table();
    let mut conn = pool.pool().acquire().await.map_err(classify::<Sqlite>)?;
    let read = statement("SELECT coalesce(max(version), 0) FROM {versions}", table);
    let at: i32 = sqlx::query_scalar(read)
        .fetch_one(&mut *conn)
        .await
        .map_err(classify::<Sqlite>)?;
    let want = migrations(records).last().map_or(0, |step| step.version);
    if at != want {
        return Err(unusable(format!(
            "{table} is at version {at}, this build needs {want}"
        )));
    }
    let (schema, local) = table.rsplit_once('.').unwrap_or(("main", table));
    let columns: Vec<(String, String, i64)> =
        sqlx::query_as("SELECT name, type, pk FROM pragma_table_info(?1, ?2)")
            .bind(local.to_owned())
            .bind(schema.to_owned())
            .fetch_all(&mut *conn)
            .await
            .map_err(classify::<Sqlite>)?;
    for (name, kind) in COLUMNS {
        match columns.iter().find(|(column, ..)| column == name) {
            Some((_, found, _)) if found.eq_ignore_ascii_case(kind) => {}
            Some((_, found, _)) => {
                return Err(unusable(format!(
                    "{table}.{name} is {found}, it must be {kind}"
                )));
            }
            None => return Err(unusable(format!("{table} has no column {name}"))),
        }
    }
    if columns
        .iter()
        .any(|(name, _, pk)| (*pk > 0) != (name == "id"))
    {
        return Err(unusable(format!(
            "the primary key of {table} must be exactly (id)"
        )));
    }
    let deferred: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pragma_foreign_key_list(?1, ?2) WHERE \"from\" = 'incomplete'",
    )
    .bind(local.to_owned())
    .bind(schema.to_owned())
    .fetch_one(&mut *conn)
    .await
    .map_err(classify::<Sqlite>)?;
    let enforced: i64 = sqlx::query_scalar("PRAGMA foreign_keys")
        .fetch_one(&mut *conn)
        .await
        .map_err(classify::<Sqlite>)?;
    if deferred == 0 || enforced == 0 {
        return Err(unusable(
            "the foreign key on `incomplete` is missing or not enforced (PRAGMA foreign_keys): an \
             unfinished call could be committed",
        ));
    }
    let any = statement("SELECT EXISTS (SELECT 1 FROM {never})", table);
    if sqlx::query_scalar(any)
        .fetch_one(&mut *conn)
        .await
        .map_err(classify::<Sqlite>)?
    {
        return Err(not_empty(table));
    }
    Ok(())
}

const COLUMNS: &[(&str, &str)] = &[
    ("id", "BLOB"),
    ("scope", "TEXT"),
    ("key_text", "TEXT"),
    ("fingerprint", "BLOB"),
    ("owner", "BLOB"),
    ("incomplete", "INTEGER"),
    ("outcome", "BLOB"),
    ("created_at", "INTEGER"),
    ("completed_at", "INTEGER"),
    ("expires_at", "INTEGER"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sl_01_busy_in_all_its_forms_means_a_new_transaction() {
        for code in ["5", "6", "261", "517", "773", "262"] {
            assert_eq!(
                Sqlite::kind_of_code(code),
                ErrorKind::RetryTransaction,
                "{code}"
            );
        }
        assert_eq!(Sqlite::kind_of_code("787"), ErrorKind::StoreUnavailable);
    }
}
