//! The statements of a transition, assembled once for a database.

use std::fmt::Write as _;

use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

use super::State;
use super::database::Guarded;

/// Names that have been checked.
#[derive(Debug)]
pub(super) struct Names<S> {
    pub(super) table: String,
    pub(super) id: String,
    pub(super) status: String,
    pub(super) version: Option<String>,
    pub(super) stamps: Vec<(S, String)>,
}

#[derive(Debug)]
pub(super) struct Texts {
    /// By the target's place in [`State::ALL`]; none for one that nothing leads to.
    update: Vec<Option<SqlStr>>,
    pub(super) read: SqlStr,
}

impl Texts {
    pub(super) fn of<S: State, D: Guarded>(names: &Names<S>) -> Self {
        let update = S::ALL.iter().map(|to| update::<S, D>(names, *to));
        let (table, id, status) = (
            quoted::<D>(&names.table),
            quoted::<D>(&names.id),
            quoted::<D>(&names.status),
        );
        let read = format!(
            "SELECT CAST({status} AS {}) FROM {table} WHERE {id} = {}{}",
            D::TEXT,
            D::PLACEHOLDER,
            D::READ_LATEST
        );
        Self {
            update: update.collect(),
            read: safe(read),
        }
    }

    pub(super) fn update_to<S: State>(&self, to: S) -> Option<&SqlStr> {
        let at = S::ALL.iter().position(|state| *state == to)?;
        self.update.get(at)?.as_ref()
    }
}

/// The states stand in the text and not among the arguments: so a column of an enumerated type of
/// the database takes them too. The derive lets nothing through that would need escaping.
fn update<S: State, D: Guarded>(names: &Names<S>, to: S) -> Option<SqlStr> {
    let (first, rest) = to.sources().split_first()?;
    let (table, id, status) = (
        quoted::<D>(&names.table),
        quoted::<D>(&names.id),
        quoted::<D>(&names.status),
    );
    let mut sql = format!("UPDATE {table} SET {status} = '{}'", to.as_str());
    if let Some(version) = &names.version {
        let version = quoted::<D>(version);
        let _ = write!(sql, ", {version} = {version} + 1");
    }
    for (_, column) in names.stamps.iter().filter(|(state, _)| *state == to) {
        let column = quoted::<D>(column);
        let _ = write!(sql, ", {column} = COALESCE({column}, {})", D::NOW);
    }
    let _ = write!(
        sql,
        " WHERE {id} = {} AND {status} IN ('{}'",
        D::PLACEHOLDER,
        first.as_str()
    );
    for source in rest {
        let _ = write!(sql, ", '{}'", source.as_str());
    }
    sql.push(')');
    Some(safe(sql))
}

/// `name` or `schema.name`, as it is written in the catalogue.
fn quoted<D: Guarded>(name: &str) -> String {
    let quote = D::QUOTE;
    let parts: Vec<_> = name
        .split('.')
        .map(|part| format!("{quote}{part}{quote}"))
        .collect();
    parts.join(".")
}

fn safe(sql: String) -> SqlStr {
    // Shared, so that using it copies nothing.
    AssertSqlSafe(std::sync::Arc::<str>::from(sql)).into_sql_str()
}
