use crate::error::{Error, ErrorKind};

fn is_plain(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// A table's name, `name` or `schema.name`, that may stand in a statement.
pub(crate) fn checked_table(table: &str) -> Result<&str, Error> {
    let mut names = table.split('.');
    let valid = names.next().is_some_and(is_plain)
        && names.next().is_none_or(is_plain)
        && names.next().is_none();
    if valid {
        return Ok(table);
    }
    Err(Error::new(ErrorKind::Schema).detail(format!(
        "{table:?} is no table name (`name` or `schema.name`)"
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
    checked_table(table)
}

/// Postgres cuts names after 63 bytes: with `_expires_at` behind it, a longer one would be cut.
const MAX_OWN_TABLE: usize = 52;

/// A column's name that may stand in a statement.
pub(crate) fn checked_name(name: &str) -> Result<&str, Error> {
    if is_plain(name) {
        return Ok(name);
    }
    Err(Error::new(ErrorKind::Schema).detail(format!("{name:?} is no column name")))
}
