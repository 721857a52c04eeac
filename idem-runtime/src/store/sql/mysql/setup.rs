//! The schema of records: created, updated, checked.

#[cfg(feature = "testing")]
use sqlx::AssertSqlSafe;
use sqlx::mysql::MySql;

use crate::error::Error;
use crate::store::sql::handle::{OwnPool, Records};
use crate::store::sql::schema::{self, Migration, Promise, Schema, Shape, Step, Table};

/// The schema's steps, for the table `idem_record` or another one.
#[must_use]
pub fn migrations(records: &Records) -> Vec<Migration> {
    schema_of(records).migrations::<MySql>()
}

/// Creates or updates the table `idem_record`. Safe to run in many processes at once, and again
/// after it was interrupted: the server commits each statement of a schema by itself. Where
/// the schema is up to date, whoever made it, nothing is written.
///
/// # Errors
/// The database cannot be used, a table of that name is there that is not ours, or the schema is of
/// a newer build that this one cannot work with.
///
/// # Cancel safety
/// What was done stays, and is taken up by the next one.
pub async fn migrate(pool: &impl OwnPool<Db = MySql>) -> Result<(), Error> {
    schema::migrate(pool.pool(), schema_of(pool.records())).await
}

/// Reports, all at once and each with its remedy, whatever would break the promise or refuse every
/// call: a schema that is missing, older than this build, or newer and not made for it; columns, types,
/// collations, or a primary key other than `id` alone (a key with a partition column would let one call
/// run twice); another engine than InnoDB; `BEFORE` triggers; rights that the user lacks; a read-only
/// server; `READ UNCOMMITTED` as the session's level, a `sql_mode` that is not strict, and
/// `innodb_rollback_on_timeout`.
///
/// It reads `information_schema` and is cheap enough to run whenever a service starts.
///
/// # Errors
/// [`ErrorKind::Schema`](crate::ErrorKind::Schema) with what is wrong; or the database cannot be
/// used.
///
/// # Cancel safety
/// Changes nothing.
pub async fn check(pool: &impl OwnPool<Db = MySql>) -> Result<(), Error> {
    schema::check(pool.pool(), schema_of(pool.records())).await
}

fn schema_of(records: &Records) -> Schema<'_> {
    Schema::new(&RECORD, records.table())
}

pub(in crate::store::sql) static RECORD: Shape = Shape {
    steps: &[Step {
        version: 1,
        serves_from: 1,
        name: "record",
        sql: include_str!("../migrations/mysql/0001_record.sql"),
    }],
    tables: &[Table {
        name: "{table}",
        columns: &[
            ("id", "binary(16)"),
            ("scope", "text"),
            ("key_text", "varchar(1024)"),
            ("fingerprint", "varbinary(64)"),
            ("owner", "binary(16)"),
            ("outcome", "longblob"),
            ("created_at", "datetime(3)"),
            ("completed_at", "datetime(3)"),
            ("expires_at", "datetime(3)"),
            ("known_until", "datetime(3)"),
        ],
        key: "id",
        rights: "SELECT,INSERT,UPDATE,DELETE",
    }],
    promises: &[Promise::WaitsEndAlone],
};

/// These records with the statements and the lock wait of MySQL, whatever the server is: MariaDB
/// answers them as well.
#[cfg(feature = "testing")]
#[must_use]
pub fn as_on_mysql(records: Records) -> Records {
    use super::super::dialect::Dialect as _;

    let without_comments = |sql: &sqlx::SqlStr| {
        let mut parts = sql.as_str().split("/*M!");
        let first = parts.next().unwrap_or_default().to_owned();
        let rest = parts.filter_map(|part| part.split_once("*/"));
        let sql = rest.fold(first, |sql, (_, after)| sql + after);
        sqlx::SqlSafeStr::into_sql_str(AssertSqlSafe(sql))
    };
    let sql = MySql::statements(records.table());
    records.with_statements::<MySql>(super::Statements {
        insert: without_comments(&sql.insert),
        insert_blocking: without_comments(&sql.insert_blocking),
        take_over: without_comments(&sql.take_over),
        complete: without_comments(&sql.complete),
        release: without_comments(&sql.release),
        forget: without_comments(&sql.forget),
        wait_is_scoped: std::sync::OnceLock::from(false),
        ..sql
    })
}
