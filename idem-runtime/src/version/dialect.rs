use std::fmt::Write as _;
use std::future::Future;

use sqlx::error::BoxDynError;
use sqlx::{Arguments as _, AssertSqlSafe, Database, SqlSafeStr as _, SqlStr};

use crate::error::{Error, ErrorKind};
use crate::store::sql::{Dialect, checked_name};

/// The two statements of one [`VersionedUpdate`](super::VersionedUpdate).
#[derive(Clone, Debug)]
pub(super) struct Texts {
    pub(super) update: SqlStr,
    pub(super) read: SqlStr,
}

/// What versioned updates need to know of a database. Sealed with [`Dialect`].
pub trait VersionDialect: Dialect {
    /// The type that a version of any integer column is read as.
    #[doc(hidden)]
    const INTEGER: &'static str;

    /// What makes the second read see what is committed now.
    #[doc(hidden)]
    const CURRENT: &'static str;

    /// Whether an update may tell the rows that it changed instead of those that it found.
    #[doc(hidden)]
    const MAY_COUNT_CHANGED: bool;

    #[doc(hidden)]
    fn bind_version(args: &mut Self::Arguments, version: i64) -> Result<(), BoxDynError>;

    #[doc(hidden)]
    fn execute(
        conn: &mut Self::Connection,
        sql: &SqlStr,
        args: Self::Arguments,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// The version of the row, if there is one; the version may be NULL.
    #[doc(hidden)]
    fn read_version(
        conn: &mut Self::Connection,
        sql: &SqlStr,
        args: Self::Arguments,
    ) -> impl Future<Output = Result<Option<Option<i64>>, sqlx::Error>> + Send;
}

/// The texts; the names have been checked.
pub(super) fn texts<D: VersionDialect>(
    table: &str,
    id: &str,
    version: &str,
    columns: &[String],
) -> Texts {
    let mut places = Places::<D>::default();
    let mut update = format!("UPDATE {table} SET ");
    for column in columns {
        let _ = write!(update, "{column} = {}, ", places.next());
    }
    let _ = write!(
        update,
        "{version} = {version} + 1 WHERE {id} = {}",
        places.next()
    );
    let _ = write!(update, " AND {version} = {}", places.next());
    let read = format!(
        "SELECT CAST({version} AS {}) FROM {table} WHERE {id} = {}{}",
        D::INTEGER,
        Places::<D>::default().next(),
        D::CURRENT
    );
    Texts {
        update: AssertSqlSafe(update).into_sql_str(),
        read: AssertSqlSafe(read).into_sql_str(),
    }
}

/// Refuses names that are no plain ones, and one that stands for two columns.
pub(crate) fn check_columns<'n>(names: impl IntoIterator<Item = &'n String>) -> Result<(), Error> {
    let mut seen: Vec<String> = Vec::new();
    for name in names {
        let name = checked_name(name)?.to_ascii_lowercase();
        if seen.contains(&name) {
            return Err(
                Error::new(ErrorKind::Schema).detail(format!("the column {name:?} is named twice"))
            );
        }
        seen.push(name);
    }
    Ok(())
}

/// Placeholders in the database's own form: Postgres numbers them by the arguments so far.
pub(crate) struct Places<D: Database> {
    count: usize,
    args: std::marker::PhantomData<D>,
}

impl<D: Database> Default for Places<D> {
    fn default() -> Self {
        Self {
            count: 0,
            args: std::marker::PhantomData,
        }
    }
}

impl<D: VersionDialect> Places<D> {
    pub(crate) fn next(&mut self) -> String {
        self.count += 1;
        let mut place = String::new();
        // Writing into a String does not fail.
        let _ = D::Arguments::default().format_placeholder(&mut place);
        if place.starts_with('$') {
            place = format!("${}", self.count);
        }
        place
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
macro_rules! common {
    () => {
        fn bind_version(args: &mut Self::Arguments, version: i64) -> Result<(), BoxDynError> {
            args.add(version)
        }

        async fn execute(
            conn: &mut Self::Connection,
            sql: &SqlStr,
            args: Self::Arguments,
        ) -> Result<u64, sqlx::Error> {
            let done = sqlx::query_with(sql.clone(), args).execute(conn).await?;
            Ok(done.rows_affected())
        }

        async fn read_version(
            conn: &mut Self::Connection,
            sql: &SqlStr,
            args: Self::Arguments,
        ) -> Result<Option<Option<i64>>, sqlx::Error> {
            sqlx::query_scalar_with(sql.clone(), args)
                .fetch_optional(conn)
                .await
        }
    };
}

#[cfg(feature = "postgres")]
impl VersionDialect for sqlx::Postgres {
    const INTEGER: &'static str = "bigint";
    const CURRENT: &'static str = "";
    const MAY_COUNT_CHANGED: bool = false;

    common!();
}

#[cfg(feature = "sqlite")]
impl VersionDialect for sqlx::Sqlite {
    const INTEGER: &'static str = "INTEGER";
    const CURRENT: &'static str = "";
    const MAY_COUNT_CHANGED: bool = false;

    common!();
}

#[cfg(feature = "mysql")]
impl VersionDialect for sqlx::MySql {
    const INTEGER: &'static str = "SIGNED";
    // Under REPEATABLE READ a plain read would show the version that the update did not find.
    const CURRENT: &'static str = " LOCK IN SHARE MODE";
    const MAY_COUNT_CHANGED: bool = true;

    common!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "postgres")]
    fn the_version_changes_in_the_very_statement_that_checks_it() {
        let columns = ["balance".to_owned(), "note".to_owned()];
        let texts = texts::<sqlx::Postgres>("account", "id", "version", &columns);
        assert_eq!(
            texts.update.as_str(),
            "UPDATE account SET balance = $1, note = $2, version = version + 1 \
             WHERE id = $3 AND version = $4"
        );
        assert_eq!(
            texts.read.as_str(),
            "SELECT CAST(version AS bigint) FROM account WHERE id = $1"
        );
    }

    #[test]
    #[cfg(feature = "mysql")]
    fn mysql_reads_what_is_committed_now() {
        let texts = texts::<sqlx::MySql>("shop.account", "no", "v", &["balance".to_owned()]);
        assert_eq!(
            texts.update.as_str(),
            "UPDATE shop.account SET balance = ?, v = v + 1 WHERE no = ? AND v = ?"
        );
        assert!(texts.read.as_str().ends_with("LOCK IN SHARE MODE"));
    }
}
