use sqlx::{AssertSqlSafe, SqlStr};

use crate::error::{Error, ErrorKind};

/// One step of the schema. The texts are part of the public interface: print them into your own
/// migration tool, or let `migrate` run them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Migration {
    /// Its number; steps run in this order.
    pub version: i32,
    /// What it is for.
    pub name: &'static str,
    /// Its statements.
    pub sql: String,
}

/// The places where a table's names go into a schema text.
pub(crate) fn fill(template: &str, table: &str) -> String {
    let (prefix, local) = match table.rsplit_once('.') {
        Some((schema, local)) => (format!("{schema}."), local),
        None => (String::new(), table),
    };
    template
        .replace("{table}", table)
        .replace("{table_local}", local)
        .replace("{never}", &format!("{prefix}{local}_never"))
        .replace("{never_local}", &format!("{local}_never"))
        .replace("{fences}", &format!("{prefix}{local}_fence"))
        .replace("{fences_local}", &format!("{local}_fence"))
        .replace("{versions}", &format!("{prefix}{local}_schema"))
        .replace("{index}", &format!("{prefix}{local}_expires_at"))
}

/// A statement for `table`; the name has been checked by `Records`.
pub(crate) fn statement(template: &str, table: &str) -> SqlStr {
    sqlx::SqlSafeStr::into_sql_str(AssertSqlSafe(fill(template, table)))
}

/// That all steps were run; gives the version.
pub(crate) fn check_version(table: &str, at: i64, steps: &[Migration]) -> Result<i32, Error> {
    let want = steps.last().map_or(0, |step| step.version);
    if at == i64::from(want) {
        return Ok(want);
    }
    Err(unusable(format!(
        "{table} is at version {at}, this build needs {want}"
    )))
}

/// That each column is `found`, and of its type.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn check_columns<'a>(
    table: &str,
    wanted: &[(&str, &str)],
    found: impl Fn(&str) -> Option<&'a str>,
) -> Result<(), Error> {
    for (name, kind) in wanted {
        match found(name) {
            Some(found) if found.eq_ignore_ascii_case(kind) => {}
            Some(found) => {
                return Err(unusable(format!(
                    "{table}.{name} is {found}, it must be {kind}"
                )));
            }
            None => return Err(unusable(format!("{table} has no column {name}"))),
        }
    }
    Ok(())
}

pub(crate) fn unusable(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::Schema).detail(detail)
}

/// The table that unfinished rows point at holds a row: they could be committed.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) fn not_empty(table: &str) -> Error {
    unusable(fill(
        "{never} must stay empty: an unfinished call could be committed",
        table,
    ))
}
