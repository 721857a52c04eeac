//! What updates that carry their own condition need of a database: version, fencing number, state.
//!
//! Such an update is one statement on a table of the application's own. The database decides, so the
//! statement must mean the same wherever it runs: names are quoted, values keep their types, states
//! are compared byte by byte, and a value that does not fit its column is an error.

mod bound;
mod counter;
mod failed;

use std::future::Future;

use sqlx::error::BoxDynError;
use sqlx::{Arguments as _, SqlStr};

pub use bound::Bound;
pub(crate) use bound::{Places, shared};
pub(crate) use counter::{Counter, exists};
pub(crate) use failed::{effect_of, failed, retry_of};

use super::Dialect;

/// A database in which updates can carry their own condition. Sealed, like [`Dialect`].
pub trait Guarded: Dialect {
    /// Quotes a name. On SQLite never by `"`: an unknown column would become a text.
    #[doc(hidden)]
    const QUOTE: char;

    /// Whether placeholders are numbered.
    #[doc(hidden)]
    const NUMBERED: bool;

    /// Whether a connection keeps a prepared statement with the types of its first arguments and
    /// sends those of any other type as if they were of these.
    #[doc(hidden)]
    const KEEPS_TYPES: bool;

    /// How an update begins under which a value that does not fit its column is an error, whatever
    /// the session's settings are.
    #[doc(hidden)]
    const UPDATE: &'static str;

    /// A column's text so that it is compared byte by byte, whatever its collation is.
    #[doc(hidden)]
    const EXACT: (&'static str, &'static str);

    /// The type that any column of states can be cast to.
    #[doc(hidden)]
    const TEXT: &'static str;

    /// The type that a number of any integer column is read as.
    #[doc(hidden)]
    const INTEGER: &'static str;

    #[doc(hidden)]
    const NOW: &'static str;

    /// What makes a read see what the update saw.
    #[doc(hidden)]
    const LATEST: &'static str;

    /// Whether an update may tell the rows that it changed instead of those that it found.
    #[doc(hidden)]
    const MAY_COUNT_CHANGED: bool;

    /// Whether a transaction that has read waits for the one place of the writer as well as one that
    /// has not. On SQLite it does not: it fails at once.
    #[doc(hidden)]
    const MAY_READ_FIRST: bool;

    #[doc(hidden)]
    fn add_integer(args: &mut Self::Arguments, number: i64) -> Result<(), BoxDynError>;

    /// How many rows the statement found, or changed.
    #[doc(hidden)]
    fn execute(
        conn: &mut Self::Connection,
        sql: &SqlStr,
        args: Self::Arguments,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// The number in the row, if there is a row; it may be NULL.
    #[doc(hidden)]
    fn read_integer(
        conn: &mut Self::Connection,
        sql: SqlStr,
        args: Self::Arguments,
    ) -> impl Future<Output = Result<Option<Option<i64>>, sqlx::Error>> + Send;

    /// The text in the row, if there is a row; it may be NULL.
    #[doc(hidden)]
    fn read_text(
        conn: &mut Self::Connection,
        sql: SqlStr,
        args: Self::Arguments,
    ) -> impl Future<Output = Result<Option<Option<String>>, sqlx::Error>> + Send;

    /// The type of a column, and whether it may be NULL; nothing if the catalogue does not say.
    #[doc(hidden)]
    fn column(
        conn: &mut Self::Connection,
        table: &str,
        column: &str,
    ) -> impl Future<Output = Result<Option<(String, bool)>, sqlx::Error>> + Send;
}

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
macro_rules! common {
    () => {
        fn add_integer(args: &mut Self::Arguments, number: i64) -> Result<(), BoxDynError> {
            args.add(number)
        }

        async fn execute(
            conn: &mut Self::Connection,
            sql: &SqlStr,
            args: Self::Arguments,
        ) -> Result<u64, sqlx::Error> {
            let done = sqlx::query_with(sql.clone(), args).execute(conn).await?;
            Ok(done.rows_affected())
        }

        async fn read_integer(
            conn: &mut Self::Connection,
            sql: SqlStr,
            args: Self::Arguments,
        ) -> Result<Option<Option<i64>>, sqlx::Error> {
            sqlx::query_scalar_with(sql, args)
                .fetch_optional(conn)
                .await
        }

        async fn read_text(
            conn: &mut Self::Connection,
            sql: SqlStr,
            args: Self::Arguments,
        ) -> Result<Option<Option<String>>, sqlx::Error> {
            sqlx::query_scalar_with(sql, args)
                .fetch_optional(conn)
                .await
        }
    };
}

// A second statement sees what the update waited for: under READ COMMITTED because it has a
// snapshot of its own, above because the update fails with 40001 otherwise.
#[cfg(feature = "postgres")]
impl Guarded for sqlx::Postgres {
    const QUOTE: char = '"';
    const NUMBERED: bool = true;
    const KEEPS_TYPES: bool = true;
    const UPDATE: &'static str = "UPDATE";
    const EXACT: (&'static str, &'static str) = ("CAST(", " AS text) COLLATE \"C\"");
    const TEXT: &'static str = "text";
    const INTEGER: &'static str = "bigint";
    const NOW: &'static str = "CURRENT_TIMESTAMP";
    const LATEST: &'static str = "";
    const MAY_COUNT_CHANGED: bool = false;
    const MAY_READ_FIRST: bool = true;

    common!();

    async fn column(
        conn: &mut Self::Connection,
        table: &str,
        column: &str,
    ) -> Result<Option<(String, bool)>, sqlx::Error> {
        let table = super::names::quoted::<Self>(table);
        let sql = "SELECT format_type(COALESCE(NULLIF(t.typbasetype, 0), t.oid), NULL), \
                   NOT (a.attnotnull OR t.typnotnull) \
                   FROM pg_catalog.pg_attribute a \
                   JOIN pg_catalog.pg_type t ON t.oid = a.atttypid \
                   WHERE a.attrelid = to_regclass($1) AND a.attname = $2 AND NOT a.attisdropped";
        let row = sqlx::query_as(sql).bind(table).bind(column);
        row.fetch_optional(conn).await
    }
}

// An update that has found no row has still taken the one place of the writer.
#[cfg(feature = "sqlite")]
impl Guarded for sqlx::Sqlite {
    const QUOTE: char = '`';
    const NUMBERED: bool = false;
    const KEEPS_TYPES: bool = false;
    const UPDATE: &'static str = "UPDATE";
    const EXACT: (&'static str, &'static str) = ("", " COLLATE BINARY");
    const TEXT: &'static str = "TEXT";
    const INTEGER: &'static str = "INTEGER";
    const NOW: &'static str = "STRFTIME('%Y-%m-%d %H:%M:%f', 'now')";
    const LATEST: &'static str = "";
    const MAY_COUNT_CHANGED: bool = false;
    const MAY_READ_FIRST: bool = false;

    common!();

    async fn column(
        conn: &mut Self::Connection,
        table: &str,
        column: &str,
    ) -> Result<Option<(String, bool)>, sqlx::Error> {
        let (schema, table) = match table.split_once('.') {
            Some((schema, table)) => (Some(schema), table),
            None => (None, table),
        };
        let sql = "SELECT lower(type), NOT (\"notnull\" OR pk) FROM pragma_table_xinfo(?, ?) \
                   WHERE name = ? COLLATE NOCASE";
        let row = sqlx::query_as(sql).bind(table).bind(schema).bind(column);
        row.fetch_optional(conn).await
    }
}

// Under REPEATABLE READ a plain read would answer from the snapshot and not see what the update
// waited for. Not shared: two calls that hold the row shared could not both go on to update it.
// Strictness is for one statement: by `SET STATEMENT` on MariaDB, by a hint on MySQL.
#[cfg(feature = "mysql")]
impl Guarded for sqlx::MySql {
    const QUOTE: char = '`';
    const NUMBERED: bool = false;
    const KEEPS_TYPES: bool = false;
    const UPDATE: &'static str = "/*M! SET STATEMENT sql_mode='STRICT_ALL_TABLES' FOR */ \
        UPDATE /*+ SET_VAR(sql_mode='STRICT_ALL_TABLES') */";
    const EXACT: (&'static str, &'static str) = ("CAST(CONVERT(", " USING utf8mb4) AS BINARY)");
    const TEXT: &'static str = "CHAR";
    const INTEGER: &'static str = "SIGNED";
    const NOW: &'static str = "CURRENT_TIMESTAMP(6)";
    const LATEST: &'static str = " FOR UPDATE";
    const MAY_COUNT_CHANGED: bool = true;
    const MAY_READ_FIRST: bool = true;

    common!();

    async fn column(
        conn: &mut Self::Connection,
        table: &str,
        column: &str,
    ) -> Result<Option<(String, bool)>, sqlx::Error> {
        let (schema, table) = match table.split_once('.') {
            Some((schema, table)) => (Some(schema), table),
            None => (None, table),
        };
        let sql = "SELECT LOWER(CAST(DATA_TYPE AS CHAR)), IS_NULLABLE = 'YES' \
                   FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) \
                   AND TABLE_NAME = ? AND COLUMN_NAME = ?";
        let row = sqlx::query_as::<_, (String, i64)>(sql)
            .bind(schema)
            .bind(table)
            .bind(column);
        let row = row.fetch_optional(conn).await?;
        Ok(row.map(|(kind, null)| (kind, null != 0)))
    }
}
