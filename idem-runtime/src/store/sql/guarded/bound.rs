//! Arguments with the types that they are sent as, and places for them.

use std::fmt::Write as _;

use sqlx::error::BoxDynError;
use sqlx::{Arguments as _, AssertSqlSafe, Encode, SqlSafeStr as _, SqlStr, Type, TypeInfo as _};

use super::Guarded;

/// The arguments of one statement.
///
/// sqlx keeps one prepared statement for one text. On Postgres it has the types of the arguments it
/// was prepared with, and the bytes of any other type are read as if they were of these. So the
/// types stand in the text, as a comment.
#[doc(hidden)]
pub struct Bound<D: Guarded> {
    args: D::Arguments,
    types: String,
}

impl<D: Guarded> Default for Bound<D> {
    fn default() -> Self {
        Self {
            args: D::Arguments::default(),
            types: String::new(),
        }
    }
}

impl<D: Guarded> Bound<D> {
    pub(crate) fn add<'t, T: Encode<'t, D> + Type<D>>(
        &mut self,
        value: T,
    ) -> Result<(), BoxDynError> {
        if D::KEEPS_TYPES {
            self.note(&value.produces().unwrap_or_else(T::type_info));
        }
        self.args.add(value)
    }

    pub(crate) fn add_integer(&mut self, number: i64) -> Result<(), BoxDynError> {
        D::add_integer(&mut self.args, number)
    }

    fn note(&mut self, kind: &D::TypeInfo) {
        let name = match kind.name() {
            // A type that is declared by its number alone.
            "?" => format!("{kind:?}"),
            name => name.to_owned(),
        };
        self.types.push(' ');
        // Nothing may end the comment.
        self.types
            .extend(name.chars().filter(|c| !matches!(c, '*' | '/')));
    }

    /// The statement for arguments of these types, and the arguments.
    pub(crate) fn of(self, sql: &SqlStr) -> (SqlStr, D::Arguments) {
        if self.types.is_empty() {
            return (sql.clone(), self.args);
        }
        let text = format!("{} /*{} */", sql.as_str(), self.types);
        (AssertSqlSafe(text).into_sql_str(), self.args)
    }
}

/// Placeholders in the database's own form.
#[derive(Default)]
pub(crate) struct Places {
    count: usize,
}

impl Places {
    pub(crate) fn next<D: Guarded>(&mut self) -> String {
        let mut place = String::from("?");
        if D::NUMBERED {
            self.count += 1;
            place = String::from("$");
            // Writing into a String does not fail.
            let _ = write!(place, "{}", self.count);
        }
        place
    }
}

/// A text whose names were checked; shared, so that using it copies nothing.
pub(crate) fn shared(sql: String) -> SqlStr {
    AssertSqlSafe(std::sync::Arc::<str>::from(sql)).into_sql_str()
}
