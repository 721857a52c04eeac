//! The column that counts: a version, a fencing number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Guarded, failed};
use crate::error::{Effect, Error, ErrorKind};

/// A column that counts, looked up in the catalogue when it is first used.
///
/// Some types take a number and do not count: to a `DATETIME` of MySQL one is added as to the number
/// of its digits, and a `REAL` that is large enough stays the same when one is added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter(Arc<AtomicBool>);

impl Counter {
    /// Before the first update, where a read may come before it.
    pub(crate) async fn before<D: Guarded>(
        &self,
        conn: &mut D::Connection,
        table: &str,
        column: &str,
    ) -> Result<(), Error> {
        match D::MAY_READ_FIRST {
            true => self.look_once::<D>(conn, table, column).await,
            false => Ok(()),
        }
    }

    /// After the first update, where no read may come before it. What it finds calls for a rollback.
    pub(crate) async fn after<D: Guarded>(
        &self,
        conn: &mut D::Connection,
        table: &str,
        column: &str,
    ) -> Result<(), Error> {
        if D::MAY_READ_FIRST {
            return Ok(());
        }
        let looked = self.look_once::<D>(conn, table, column).await;
        looked.map_err(|error| error.effect_is(Effect::Done))
    }

    /// Once; a column that the catalogue does not know is left to the statement to miss.
    async fn look_once<D: Guarded>(
        &self,
        conn: &mut D::Connection,
        table: &str,
        column: &str,
    ) -> Result<(), Error> {
        if self.0.load(Ordering::Relaxed) {
            return Ok(());
        }
        if let Some((kind, _)) = self::column::<D>(conn, table, column).await? {
            check_type(table, column, &kind)?;
        }
        self.0.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// In full, for a check at start-up.
    pub(crate) async fn check<D: Guarded>(
        &self,
        conn: &mut D::Connection,
        table: &str,
        column: &str,
        may_be_null: bool,
    ) -> Result<(), Error> {
        let (kind, null) = exists::<D>(conn, table, column).await?;
        check_type(table, column, &kind)?;
        if null && !may_be_null {
            return Err(wrong(format!(
                "the column `{column}` of `{table}` may be NULL: make it NOT NULL"
            )));
        }
        self.0.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// The type of a column that has to be there, and whether it may be NULL.
pub(crate) async fn exists<D: Guarded>(
    conn: &mut D::Connection,
    table: &str,
    name: &str,
) -> Result<(String, bool), Error> {
    let found = column::<D>(conn, table, name).await?;
    found.ok_or_else(|| wrong(format!("there is no column `{name}` in `{table}`")))
}

async fn column<D: Guarded>(
    conn: &mut D::Connection,
    table: &str,
    column: &str,
) -> Result<Option<(String, bool)>, Error> {
    let found = D::column(conn, table, column).await;
    // It only reads.
    found.map_err(|error| failed::<D>(table, error).effect_is(Effect::None))
}

/// Types that count without losing a step. SQLite's have several words (`UNSIGNED BIG INT`), and none
/// in a view.
const COUNTS: [&str; 11] = [
    "int",
    "integer",
    "bigint",
    "smallint",
    "mediumint",
    "tinyint",
    "int2",
    "int4",
    "int8",
    "numeric",
    "decimal",
];

fn check_type(table: &str, column: &str, kind: &str) -> Result<(), Error> {
    let mut words = kind.split(|c: char| !c.is_ascii_alphanumeric());
    if kind.is_empty() || words.any(|word| COUNTS.contains(&word)) {
        return Ok(());
    }
    Err(wrong(format!(
        "the column `{column}` of `{table}` is of the type {kind}: it must be an integer"
    )))
}

fn wrong(detail: String) -> Error {
    Error::new(ErrorKind::TableMismatch).detail(detail)
}

#[cfg(test)]
mod tests {
    use super::check_type;

    #[test]
    fn only_what_counts_is_a_counter() {
        for good in [
            "bigint",
            "integer",
            "smallint",
            "int",
            "mediumint",
            "int8",
            "numeric",
            "decimal(20,0)",
            "unsigned big int",
            "",
        ] {
            assert!(check_type("t", "c", good).is_ok(), "{good}");
        }
        for bad in [
            "datetime",
            "timestamp",
            "date",
            "double",
            "real",
            "float",
            "text",
            "varchar",
            "point",
            "interval",
            "int4range",
            "boolean",
            "timestamp with time zone",
        ] {
            let error = check_type("account", "at", bad).unwrap_err().to_string();
            assert!(
                error.contains("`at` of `account`") && error.contains(bad),
                "{error}"
            );
        }
    }
}
