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

/// A column's name that may stand in a statement.
pub(crate) fn checked_name(name: &str) -> Result<&str, Error> {
    if is_plain(name) {
        return Ok(name);
    }
    Err(Error::new(ErrorKind::Schema).detail(format!("{name:?} is no column name")))
}
