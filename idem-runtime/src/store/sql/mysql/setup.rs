//! The schema: created, and checked.

use sqlx::mysql::MySql;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, Pool};

use super::super::dialect::classify;
use super::super::handle::{OwnPool, Records};
use super::super::schema::{Migration, check_version, fill, statement, unusable};
use super::number;
use crate::error::{Error, ErrorKind};
use crate::key::RecordId;

/// The schema's steps, for the table `idem_record` or another one.
#[must_use]
pub fn migrations(records: &Records) -> Vec<Migration> {
    let fill = |template| fill(template, records.table());
    vec![
        Migration {
            version: 1,
            name: "record",
            sql: fill(include_str!("../migrations/mysql/0001_record.sql")),
        },
        Migration {
            version: 2,
            name: "tombstone",
            sql: fill(include_str!("../migrations/mysql/0002_tombstone.sql")),
        },
    ]
}

/// Creates or updates the table `idem_record`. Safe to run in many processes at once, and again
/// after it was interrupted: the server commits each statement of a schema by itself.
///
/// # Errors
/// The database cannot be used, or a table of that name is there that is not ours.
pub async fn migrate(pool: &impl OwnPool<Db = MySql>) -> Result<(), Error> {
    let records = pool.records();
    apply(pool.pool(), records.table(), migrations(records), COLUMNS).await
}

/// Makes the steps that are missing; `columns` are those of the table afterwards.
pub(crate) async fn apply(
    pool: &Pool<MySql>,
    table: &str,
    steps: Vec<Migration>,
    columns: Columns<'_>,
) -> Result<(), Error> {
    let conn = pool.acquire().await.map_err(classify::<MySql>)?;
    // Out of the pool: the lock ends with the connection, whatever becomes of this future.
    let mut conn = conn.detach();
    lock(&mut conn, table).await?;
    let done = upgrade(&mut conn, table, steps, columns).await;
    // The schema stands; a connection that does not close in good order is closed by its drop.
    let _ = conn.close().await;
    done
}

/// A table's columns: name, type, and the version that made it.
pub(crate) type Columns<'a> = &'a [(&'a str, &'a str, i32)];

/// One migrating process at a time.
pub(crate) async fn lock(conn: &mut MySqlConnection, table: &str) -> Result<(), Error> {
    let name = RecordId::new("", "idem.migrate", &[], table).to_string();
    let locked: Option<i64> = sqlx::query_scalar("SELECT GET_LOCK(CONCAT('idem.', ?), 300)")
        .bind(name)
        .fetch_one(conn)
        .await
        .map_err(classify::<MySql>)?;
    match locked {
        Some(1) => Ok(()),
        _ => Err(Error::new(ErrorKind::StoreUnavailable)
            .detail("another process has been migrating the schema for five minutes")),
    }
}

async fn upgrade(
    conn: &mut MySqlConnection,
    table: &str,
    steps: Vec<Migration>,
    columns: Columns<'_>,
) -> Result<(), Error> {
    let failed = |error| classify::<MySql>(error).detail("the schema could not be created");
    let versions = "CREATE TABLE IF NOT EXISTS {versions} (version INT NOT NULL PRIMARY KEY, \
                    applied_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)) ENGINE = InnoDB";
    sqlx::raw_sql(statement(versions, table))
        .execute(&mut *conn)
        .await
        .map_err(failed)?;
    let at = version(conn, table).await.map_err(failed)?;
    let missing = |step: &Migration| i64::from(step.version) > at;
    for step in steps.into_iter().filter(missing) {
        match sqlx::raw_sql(AssertSqlSafe(step.sql))
            .execute(&mut *conn)
            .await
        {
            // Interrupted between the step and its note: the column is there.
            Err(error) if number(&error) == Some(DUPLICATE_COLUMN) => {}
            done => {
                done.map_err(failed)?;
            }
        }
        // A table that was there already is left alone; it may not be ours.
        check_columns(conn, table, step.version, columns).await?;
        sqlx::query(statement(
            "INSERT INTO {versions} (version) VALUES (?)",
            table,
        ))
        .bind(step.version)
        .execute(&mut *conn)
        .await
        .map_err(failed)?;
    }
    Ok(())
}

pub(crate) async fn version(conn: &mut MySqlConnection, table: &str) -> Result<i64, sqlx::Error> {
    let read = statement("SELECT COALESCE(MAX(version), 0) FROM {versions}", table);
    sqlx::query_scalar(read).fetch_one(conn).await
}

/// Checks the schema and the server: the version, the columns and their types, that the id alone is
/// the primary key (a key with a partition column would let one call run twice), that text compares
/// by its bytes, that the engine is InnoDB, that values which do not fit are refused (`sql_mode`), and
/// that a lock wait which times out leaves the transaction alive (`innodb_rollback_on_timeout`), and
/// that sessions do not read what is not committed (`READ UNCOMMITTED`).
///
/// # Errors
/// [`ErrorKind::Schema`] with what is wrong; or the database cannot be used.
pub async fn check(pool: &impl OwnPool<Db = MySql>) -> Result<(), Error> {
    let records = pool.records();
    let table = records.table();
    let mut conn = pool.pool().acquire().await.map_err(classify::<MySql>)?;
    check_table(&mut conn, table, &migrations(records), COLUMNS).await?;
    if setting(&mut conn, "@@innodb_rollback_on_timeout").await? != 0 {
        return Err(unusable(
            "innodb_rollback_on_timeout is on: a duplicate that asks while the first call runs would \
             lose its whole transaction",
        ));
    }
    if reads_uncommitted(&mut conn).await? {
        return Err(unusable(
            "the session's isolation level is READ UNCOMMITTED: set READ COMMITTED or a higher one",
        ));
    }
    Ok(())
}

async fn reads_uncommitted(conn: &mut MySqlConnection) -> Result<bool, Error> {
    // The variable has another name on each of the two servers.
    let level: String =
        sqlx::query_scalar("SELECT /*M! @@tx_isolation */ /*!80000 @@transaction_isolation */")
            .fetch_one(conn)
            .await
            .map_err(classify::<MySql>)?;
    Ok(level == "READ-UNCOMMITTED")
}

/// The version, the columns, the key, and that values which do not fit are refused.
pub(crate) async fn check_table(
    conn: &mut MySqlConnection,
    table: &str,
    steps: &[Migration],
    columns: Columns<'_>,
) -> Result<(), Error> {
    let at = version(conn, table).await.map_err(classify::<MySql>)?;
    let version = check_version(table, at, steps)?;
    check_columns(conn, table, version, columns).await?;
    check_mode(conn).await
}

/// "Duplicate column name".
const DUPLICATE_COLUMN: u16 = 1060;

/// A table's name, in its database if one is named.
fn parts(table: &str) -> (Option<&str>, &str) {
    match table.split_once('.') {
        Some((schema, name)) => (Some(schema), name),
        None => (None, table),
    }
}

/// The columns of the table at this version, and the table itself.
async fn check_columns(
    conn: &mut MySqlConnection,
    table: &str,
    version: i32,
    wanted: Columns<'_>,
) -> Result<(), Error> {
    let (schema, name) = parts(table);
    let columns: Vec<(String, String, Option<String>)> = sqlx::query_as(
        "SELECT CAST(column_name AS CHAR), CAST(column_type AS CHAR), CAST(collation_name AS CHAR) \
         FROM information_schema.columns \
         WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?",
    )
    .bind(schema)
    .bind(name)
    .fetch_all(&mut *conn)
    .await
    .map_err(classify::<MySql>)?;
    for (want, kind, _) in wanted.iter().filter(|(.., since)| *since <= version) {
        match columns.iter().find(|(column, ..)| column == want) {
            None => return Err(unusable(format!("{table} has no column {want}"))),
            Some((_, found, _)) if width_apart(found) != *kind => {
                return Err(unusable(format!(
                    "{table}.{want} is {found}, it must be {kind}"
                )));
            }
            Some((_, _, Some(collation))) if !is_exact(collation) => {
                return Err(unusable(format!(
                    "{table}.{want} compares by {collation}, it must be utf8mb4_bin"
                )));
            }
            Some(_) => {}
        }
    }
    check_kind(conn, table, "id").await
}

/// A number's type without the width at which it is shown, which MySQL 8 no longer has.
fn width_apart(kind: &str) -> &str {
    match kind.split_once('(') {
        Some((number, _)) if number.ends_with("int") => number,
        _ => kind,
    }
}

/// That it has transactions, and that one `key` is one row.
pub(crate) async fn check_kind(
    conn: &mut MySqlConnection,
    table: &str,
    key: &str,
) -> Result<(), Error> {
    let (schema, name) = parts(table);
    let (engine, found): (Option<String>, Option<String>) = sqlx::query_as(
        "SELECT CAST(engine AS CHAR), (SELECT CAST(GROUP_CONCAT(CONCAT(column_name, \
         COALESCE(CONCAT('(', sub_part, ')'), '')) ORDER BY seq_in_index) AS CHAR) \
         FROM information_schema.statistics AS s WHERE s.table_schema = t.table_schema \
         AND s.table_name = t.table_name AND s.index_name = 'PRIMARY') \
         FROM information_schema.tables AS t \
         WHERE t.table_schema = COALESCE(?, DATABASE()) AND t.table_name = ?",
    )
    .bind(schema)
    .bind(name)
    .fetch_one(&mut *conn)
    .await
    .map_err(classify::<MySql>)?;
    if engine.as_deref() != Some("InnoDB") {
        return Err(unusable(format!(
            "the engine of {table} must be InnoDB: another one has no transactions"
        )));
    }
    if found.as_deref() != Some(key) {
        return Err(unusable(format!(
            "the primary key of {table} must be exactly ({key})"
        )));
    }
    Ok(())
}

fn is_exact(collation: &str) -> bool {
    collation.starts_with("utf8mb4_") && collation.ends_with("_bin")
}

/// That values which do not fit are refused, not cut.
async fn check_mode(conn: &mut MySqlConnection) -> Result<(), Error> {
    let mode: String = sqlx::query_scalar("SELECT CAST(@@sql_mode AS CHAR)")
        .fetch_one(conn)
        .await
        .map_err(classify::<MySql>)?;
    if !mode.split(',').any(|mode| mode.starts_with("STRICT_")) {
        return Err(unusable(
            "sql_mode is not strict (STRICT_TRANS_TABLES): values that do not fit would be cut",
        ));
    }
    Ok(())
}

/// Whether the server numbers the rows by this column.
pub(in crate::store::sql) async fn numbers_itself(
    conn: &mut MySqlConnection,
    table: &str,
    column: &str,
) -> Result<bool, Error> {
    let (schema, name) = parts(table);
    let extra: Option<String> = sqlx::query_scalar(
        "SELECT CAST(extra AS CHAR) FROM information_schema.columns \
         WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ? AND column_name = ?",
    )
    .bind(schema)
    .bind(name)
    .bind(column)
    .fetch_optional(conn)
    .await
    .map_err(classify::<MySql>)?;
    Ok(extra.is_some_and(|extra| extra.to_ascii_lowercase().contains("auto_increment")))
}

/// A number that the server or the session is set to.
pub(in crate::store::sql) async fn setting(
    conn: &mut MySqlConnection,
    name: &'static str,
) -> Result<i64, Error> {
    let ask = AssertSqlSafe(format!("SELECT CAST({name} AS SIGNED)"));
    let ask = sqlx::query_scalar(ask).fetch_one(conn);
    ask.await.map_err(classify::<MySql>)
}

const COLUMNS: Columns<'static> = &[
    ("id", "binary(16)", 1),
    ("scope", "text", 1),
    ("key_text", "varchar(1024)", 1),
    ("fingerprint", "varbinary(64)", 1),
    ("owner", "binary(16)", 1),
    ("outcome", "longblob", 1),
    ("created_at", "datetime(3)", 1),
    ("completed_at", "datetime(3)", 1),
    ("expires_at", "datetime(3)", 1),
    ("known_until", "datetime(3)", 2),
];

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
        wait_is_scoped: std::sync::OnceLock::from(false),
        ..sql
    })
}
