//! Names of tables and columns: which may stand in a statement, and how they stand there.

use super::Guarded;
use crate::error::{Error, ErrorKind};

fn is_plain(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The name of a table of the application's, `name` or `schema.name`, that may stand in a statement.
pub(crate) fn checked_user_table(table: &str) -> Result<&str, Error> {
    checked(table, ErrorKind::TableMismatch)
}

fn checked(table: &str, wrong: ErrorKind) -> Result<&str, Error> {
    let mut names = table.split('.');
    let valid = names.next().is_some_and(is_plain)
        && names.next().is_none_or(is_plain)
        && names.next().is_none();
    if valid {
        return Ok(table);
    }
    Err(Error::new(wrong).detail(format!(
        "{table:?} is not a table name: `name` or `schema.name`, of ASCII letters, digits and `_`"
    )))
}

/// The name of a table of the framework's own, which leaves room for the names of what belongs to it.
pub(crate) fn checked_own_table(table: &str) -> Result<&str, Error> {
    let local = table.rsplit_once('.').map_or(table, |(_, local)| local);
    if local.len() > MAX_OWN_TABLE {
        return Err(Error::new(ErrorKind::Schema).detail(format!(
            "{table:?} is too long for a table's name: {MAX_OWN_TABLE} characters at most"
        )));
    }
    checked(table, ErrorKind::Schema)
}

/// Postgres cuts names after 63 bytes: with `_expires_at` behind it, a longer one would be cut.
const MAX_OWN_TABLE: usize = 52;

/// A column's name that may stand in a statement.
fn checked_name(name: &str) -> Result<&str, Error> {
    if is_plain(name) {
        return Ok(name);
    }
    Err(Error::new(ErrorKind::TableMismatch).detail(format!(
        "{name:?} is not a column name: ASCII letters, digits and `_`"
    )))
}

/// Refuses names of columns that are not plain ones, and one that stands for two columns.
pub(crate) fn check_columns<N: AsRef<str>>(
    names: impl IntoIterator<Item = N>,
) -> Result<(), Error> {
    let mut seen: Vec<String> = Vec::new();
    for name in names {
        let name = checked_name(name.as_ref())?.to_ascii_lowercase();
        if seen.contains(&name) {
            return Err(Error::new(ErrorKind::TableMismatch)
                .detail(format!("the column {name:?} cannot be two columns at once")));
        }
        seen.push(name);
    }
    Ok(())
}

/// `name` or `schema.name`, checked before, as it is written in the catalogue: so it may be a word of
/// the language (`order`, `user`), and its letters keep their case.
pub(crate) fn quoted<D: Guarded>(name: &str) -> String {
    let quote = D::QUOTE;
    let parts: Vec<_> = name
        .split('.')
        .map(|part| format!("{quote}{part}{quote}"))
        .collect();
    parts.join(".")
}
