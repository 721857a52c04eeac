//! The two statements of a versioned update.

use std::fmt::Write as _;

use sqlx::SqlStr;

use crate::store::sql::Guarded;
use crate::store::sql::guarded::{Places, shared};
use crate::store::sql::quoted;

#[derive(Clone, Debug)]
pub(super) struct Texts {
    pub(super) update: SqlStr,
    pub(super) read: SqlStr,
}

impl Texts {
    /// The names have been checked.
    pub(super) fn of<D: Guarded>(table: &str, id: &str, version: &str, columns: &[String]) -> Self {
        let (table, id, version) = (quoted::<D>(table), quoted::<D>(id), quoted::<D>(version));
        let mut places = Places::default();
        let mut update = format!("{} {table} SET ", D::UPDATE);
        for column in columns {
            let _ = write!(update, "{} = {}, ", quoted::<D>(column), places.next::<D>());
        }
        let _ = write!(
            update,
            "{version} = {version} + 1 WHERE {id} = {}",
            places.next::<D>()
        );
        let _ = write!(update, " AND {version} = {}", places.next::<D>());
        let read = format!(
            "SELECT CAST({version} AS {}) FROM {table} WHERE {id} = {}{}",
            D::INTEGER,
            Places::default().next::<D>(),
            D::LATEST
        );
        Self {
            update: shared(update),
            read: shared(read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "postgres")]
    fn the_version_changes_in_the_very_statement_that_checks_it() {
        let columns = ["balance".to_owned(), "user".to_owned()];
        let texts = Texts::of::<sqlx::Postgres>("account", "id", "version", &columns);
        assert_eq!(
            texts.update.as_str(),
            "UPDATE \"account\" SET \"balance\" = $1, \"user\" = $2, \
             \"version\" = \"version\" + 1 WHERE \"id\" = $3 AND \"version\" = $4"
        );
        assert_eq!(
            texts.read.as_str(),
            "SELECT CAST(\"version\" AS bigint) FROM \"account\" WHERE \"id\" = $1"
        );
    }

    #[test]
    #[cfg(feature = "mysql")]
    fn mysql_is_strict_and_reads_what_is_committed_now() {
        let texts = Texts::of::<sqlx::MySql>("shop.account", "no", "v", &["balance".to_owned()]);
        assert_eq!(
            texts.update.as_str(),
            "/*M! SET STATEMENT sql_mode='STRICT_ALL_TABLES' FOR */ \
             UPDATE /*+ SET_VAR(sql_mode='STRICT_ALL_TABLES') */ \
             `shop`.`account` SET `balance` = ?, `v` = `v` + 1 WHERE `no` = ? AND `v` = ?"
        );
        assert!(texts.read.as_str().ends_with("FOR UPDATE"));
    }
}
