//! A table's names in the texts of its schema and its statements.

use sqlx::{AssertSqlSafe, SqlStr};

/// Puts the names of `table` and of what belongs to it into a text. `{schema}` is empty or ends with
/// a dot, `{local}` is the name after it.
pub(crate) fn fill(template: &str, table: &str) -> String {
    let (schema, local) = match table.rsplit_once('.') {
        Some((schema, local)) => (format!("{schema}."), local),
        None => (String::new(), table),
    };
    let beside = |what: &str| format!("{schema}{local}_{what}");
    template
        .replace("{table}", table)
        .replace("{schema}", &schema)
        .replace("{local}", local)
        .replace("{never}", &beside("never"))
        .replace("{fences}", &beside("fence"))
        .replace("{steps}", &beside("step"))
        .replace("{versions}", &beside("schema"))
}

/// A statement for `table`; the name has been checked by whoever holds it.
pub(crate) fn statement(template: &str, table: &str) -> SqlStr {
    sqlx::SqlSafeStr::into_sql_str(AssertSqlSafe(fill(template, table)))
}
