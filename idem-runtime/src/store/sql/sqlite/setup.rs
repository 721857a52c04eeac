//! The schema: created, updated, checked.

use sqlx::sqlite::Sqlite;
use sqlx::{Pool, SqliteConnection};

use crate::error::Error;
use crate::store::sql::dialect::classify;
use crate::store::sql::handle::{OwnPool, Records};
use crate::store::sql::schema::{
    Migration, check_columns, check_version, fill, not_empty, statement, unusable,
};
use crate::store::sql::upgrade::upgrade;

/// The schema's steps, for the table `idem_record` or another one.
#[must_use]
pub fn migrations(records: &Records) -> Vec<Migration> {
    let fill = |template| fill(template, records.table());
    vec![
        Migration {
            version: 1,
            name: "record",
            sql: fill(include_str!("../migrations/sqlite/0001_record.sql")),
        },
        Migration {
            version: 2,
            name: "tombstone",
            sql: fill(include_str!("../migrations/sqlite/0002_tombstone.sql")),
        },
    ]
}

/// Creates or updates the table `idem_record`. Safe to run in many processes at once.
///
/// # Errors
/// The database cannot be used, or a table of that name is there that is not ours.
///
/// # Cancel safety
/// All of it is done or nothing.
pub async fn migrate(pool: &impl OwnPool<Db = Sqlite>) -> Result<(), Error> {
    let records = pool.records();
    apply(pool.pool(), records.table(), migrations(records)).await
}

/// Checks the schema: the version, the columns, that the connection refuses to commit an unfinished
/// reservation (`foreign_keys`), and that it does not read what is not committed (`read_uncommitted`).
///
/// # Errors
/// [`ErrorKind::Schema`](crate::ErrorKind::Schema) with what is wrong; or the database cannot be
/// used.
///
/// # Cancel safety
/// Changes nothing.
pub async fn check(pool: &impl OwnPool<Db = Sqlite>) -> Result<(), Error> {
    let records = pool.records();
    let table = records.table();
    let mut conn = pool.pool().acquire().await.map_err(classify::<Sqlite>)?;
    check_table(&mut conn, table, &migrations(records), COLUMNS).await?;
    let (schema, local) = table.rsplit_once('.').unwrap_or(("main", table));
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
    let uncommitted: i64 = sqlx::query_scalar("PRAGMA read_uncommitted")
        .fetch_one(&mut *conn)
        .await
        .map_err(classify::<Sqlite>)?;
    if uncommitted != 0 {
        return Err(unusable(
            "PRAGMA read_uncommitted is on: calls would be answered with what is not committed",
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
    ("known_until", "INTEGER"),
];

/// Runs the steps that were not run yet, in one transaction.
pub(crate) async fn apply(
    pool: &Pool<Sqlite>,
    table: &str,
    steps: Vec<Migration>,
) -> Result<(), Error> {
    let versions =
        "CREATE TABLE IF NOT EXISTS {versions} (version INTEGER PRIMARY KEY NOT NULL) STRICT";
    let tx = pool.begin_with("BEGIN IMMEDIATE").await;
    upgrade(tx.map_err(classify::<Sqlite>)?, versions, table, steps).await
}

/// Checks version, columns and primary key.
pub(crate) async fn check_table(
    conn: &mut SqliteConnection,
    table: &str,
    steps: &[Migration],
    wanted: &[(&str, &str)],
) -> Result<(), Error> {
    let read = statement("SELECT coalesce(max(version), 0) FROM {versions}", table);
    let at: i32 = sqlx::query_scalar(read)
        .fetch_one(&mut *conn)
        .await
        .map_err(classify::<Sqlite>)?;
    check_version(table, at.into(), steps)?;
    let (schema, local) = table.rsplit_once('.').unwrap_or(("main", table));
    let columns: Vec<(String, String, i64)> =
        sqlx::query_as("SELECT name, type, pk FROM pragma_table_info(?1, ?2)")
            .bind(local.to_owned())
            .bind(schema.to_owned())
            .fetch_all(&mut *conn)
            .await
            .map_err(classify::<Sqlite>)?;
    check_columns(table, wanted, |name| {
        let mut columns = columns.iter();
        columns.find_map(|(column, kind, _)| (column == name).then_some(kind.as_str()))
    })?;
    if columns
        .iter()
        .any(|(name, _, pk)| (*pk > 0) != (name == "id"))
    {
        return Err(unusable(format!(
            "the primary key of {table} must be exactly (id)"
        )));
    }
    Ok(())
}
