//! The statements of a transition, assembled once for a database.

use std::fmt::Write as _;

use sqlx::SqlStr;

use super::State;
use crate::store::sql::guarded::{Places, shared};
use crate::store::sql::{Guarded, quoted};

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
            Places::default().next::<D>(),
            D::LATEST
        );
        Self {
            update: update.collect(),
            read: shared(read),
        }
    }

    pub(super) fn update_to<S: State>(&self, to: S) -> Option<&SqlStr> {
        let at = S::ALL.iter().position(|state| *state == to)?;
        self.update.get(at)?.as_ref()
    }
}

/// The states stand in the text and not among the arguments: so a column of an enumerated type of
/// the database takes them too. The derive lets nothing through that would need escaping. They are
/// compared byte by byte: to a collation that is blind to case or trailing spaces, `NEW` is `new`.
fn update<S: State, D: Guarded>(names: &Names<S>, to: S) -> Option<SqlStr> {
    let (first, rest) = to.sources().split_first()?;
    let (table, id, status) = (
        quoted::<D>(&names.table),
        quoted::<D>(&names.id),
        quoted::<D>(&names.status),
    );
    let mut sql = format!("{} {table} SET {status} = '{}'", D::UPDATE, to.as_str());
    if let Some(version) = &names.version {
        let version = quoted::<D>(version);
        let _ = write!(sql, ", {version} = {version} + 1");
    }
    for (_, column) in names.stamps.iter().filter(|(state, _)| *state == to) {
        let column = quoted::<D>(column);
        let _ = write!(sql, ", {column} = COALESCE({column}, {})", D::NOW);
    }
    let (before, after) = D::EXACT;
    let _ = write!(
        sql,
        " WHERE {id} = {} AND {before}{status}{after} IN ('{}'",
        Places::default().next::<D>(),
        first.as_str()
    );
    for source in rest {
        let _ = write!(sql, ", '{}'", source.as_str());
    }
    sql.push(')');
    Some(shared(sql))
}
