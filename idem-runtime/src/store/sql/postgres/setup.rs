//! The schema: created, updated, checked.

use sqlx::postgres::Postgres;
use sqlx::{PgConnection, Pool};

use crate::error::Error;
use crate::key::RecordId;
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
            sql: fill(include_str!("../migrations/postgres/0001_record.sql")),
        },
        Migration {
            version: 2,
            name: "tombstone",
            sql: fill(include_str!("../migrations/postgres/0002_tombstone.sql")),
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
pub async fn migrate(pool: &impl OwnPool<Db = Postgres>) -> Result<(), Error> {
    let records = pool.records();
    apply(pool.pool(), records.table(), migrations(records)).await
}

/// Checks the schema: columns and types, the version, that the id alone is the primary key (a key
/// with a partition column would let one call run twice), and that the database refuses to commit
/// an unfinished reservation.
///
/// # Errors
/// [`ErrorKind::Schema`](crate::ErrorKind::Schema) with what is wrong; or the database cannot be
/// used.
///
/// # Cancel safety
/// Changes nothing.
pub async fn check(pool: &impl OwnPool<Db = Postgres>) -> Result<(), Error> {
    let records = pool.records();
    let table = records.table();
    let mut conn = pool.pool().acquire().await.map_err(classify::<Postgres>)?;
    let constraints = check_table(&mut conn, table, &migrations(records), COLUMNS).await?;
    if !constraints
        .iter()
        .any(|(text, holds)| *holds && text.starts_with("FOREIGN KEY (incomplete)"))
    {
        return Err(unusable(format!(
            "{table} lacks the deferred foreign key on `incomplete`, or it is switched off: an \
             unfinished call could be committed"
        )));
    }
    let any = statement("SELECT EXISTS (SELECT FROM {never})", table);
    if sqlx::query_scalar(any)
        .fetch_one(&mut *conn)
        .await
        .map_err(classify::<Postgres>)?
    {
        return Err(not_empty(table));
    }
    Ok(())
}

const COLUMNS: &[(&str, &str)] = &[
    ("id", "uuid"),
    ("scope", "text"),
    ("key_text", "text"),
    ("fingerprint", "bytea"),
    ("owner", "uuid"),
    ("incomplete", "smallint"),
    ("outcome", "bytea"),
    ("created_at", "timestamp with time zone"),
    ("completed_at", "timestamp with time zone"),
    ("expires_at", "timestamp with time zone"),
    ("known_until", "timestamp with time zone"),
];

/// Runs the steps that were not run yet, in one transaction.
pub(crate) async fn apply(
    pool: &Pool<Postgres>,
    table: &str,
    steps: Vec<Migration>,
) -> Result<(), Error> {
    // One migrating process at a time.
    let lock = RecordId::new("", "idem.migrate", &[], table).lock_number();
    let versions = format!(
        "SELECT pg_advisory_xact_lock('{lock}'::bigint); CREATE TABLE IF NOT EXISTS {{versions}} \
         (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
    );
    let tx = pool.begin().await.map_err(classify::<Postgres>)?;
    upgrade(tx, &versions, table, steps).await
}

/// Checks version, columns and primary key; gives the constraints, each with whether it is
/// deferred and holds.
pub(crate) async fn check_table(
    conn: &mut PgConnection,
    table: &str,
    steps: &[Migration],
    wanted: &[(&str, &str)],
) -> Result<Vec<(String, bool)>, Error> {
    let read = statement("SELECT coalesce(max(version), 0) FROM {versions}", table);
    let at: i32 = sqlx::query_scalar(read)
        .fetch_one(&mut *conn)
        .await
        .map_err(classify::<Postgres>)?;
    check_version(table, at.into(), steps)?;
    let columns: Vec<(String, String)> = sqlx::query_as(
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute \
         WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped",
    )
    .bind(table)
    .fetch_all(&mut *conn)
    .await
    .map_err(classify::<Postgres>)?;
    check_columns(table, wanted, |name| {
        let mut columns = columns.iter();
        columns.find_map(|(column, kind)| (column == name).then_some(kind.as_str()))
    })?;
    let constraints: Vec<(String, bool)> = sqlx::query_as(
        "SELECT pg_get_constraintdef(oid), condeferred AND convalidated AND NOT EXISTS \
         (SELECT FROM pg_trigger WHERE tgconstraint = pg_constraint.oid AND tgenabled = 'D') \
         FROM pg_constraint WHERE conrelid = $1::text::regclass",
    )
    .bind(table)
    .fetch_all(&mut *conn)
    .await
    .map_err(classify::<Postgres>)?;
    if !constraints
        .iter()
        .any(|(text, _)| text == "PRIMARY KEY (id)")
    {
        return Err(unusable(format!(
            "the primary key of {table} must be exactly (id)"
        )));
    }
    Ok(constraints)
}
