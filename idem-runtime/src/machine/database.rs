//! What differs between databases, and the two steps that all of them can do.

use std::future::Future;

use sqlx::error::ErrorKind as Violated;
use sqlx::pool::PoolConnection;
use sqlx::{Arguments as _, Database, Encode, SqlStr, Transaction, Type};

use crate::error::{Error, ErrorKind};
use crate::store::sql::Dialect;

/// A database that transitions can be made in. Sealed, like [`Dialect`].
pub trait Guarded: Dialect {
    /// Quotes a name. On SQLite never by `"`: an unknown column would become a text.
    #[doc(hidden)]
    const QUOTE: char;
    #[doc(hidden)]
    const PLACEHOLDER: &'static str;
    /// The type that any column of states can be cast to.
    #[doc(hidden)]
    const TEXT: &'static str;
    #[doc(hidden)]
    const NOW: &'static str;
    /// What makes a read see what the update saw.
    #[doc(hidden)]
    const READ_LATEST: &'static str;

    /// The number of rows that matched.
    #[doc(hidden)]
    fn update(
        conn: &mut Self::Connection,
        sql: SqlStr,
        id: Self::Arguments,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// The text in the row; without a row nothing.
    #[doc(hidden)]
    fn read(
        conn: &mut Self::Connection,
        sql: SqlStr,
        id: Self::Arguments,
    ) -> impl Future<Output = Result<Option<Option<String>>, sqlx::Error>> + Send;
}

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
macro_rules! guarded {
    ($db:ty: $quote:literal $placeholder:literal $text:literal $now:literal $latest:literal) => {
        impl Guarded for $db {
            const QUOTE: char = $quote;
            const PLACEHOLDER: &'static str = $placeholder;
            const TEXT: &'static str = $text;
            const NOW: &'static str = $now;
            const READ_LATEST: &'static str = $latest;

            async fn update(
                conn: &mut Self::Connection,
                sql: SqlStr,
                id: Self::Arguments,
            ) -> Result<u64, sqlx::Error> {
                let done = sqlx::query_with(sql, id).execute(conn).await?;
                Ok(done.rows_affected())
            }

            async fn read(
                conn: &mut Self::Connection,
                sql: SqlStr,
                id: Self::Arguments,
            ) -> Result<Option<Option<String>>, sqlx::Error> {
                sqlx::query_scalar_with(sql, id).fetch_optional(conn).await
            }
        }
    };
}

// A second statement sees what the update waited for: under READ COMMITTED because it has a
// snapshot of its own, above because the update fails with 40001 otherwise.
#[cfg(feature = "postgres")]
guarded! { sqlx::Postgres: '"' "$1" "text" "CURRENT_TIMESTAMP" "" }

// Under REPEATABLE READ a plain read would answer from the snapshot and not see what the update
// waited for. Not shared: two calls that hold the row shared could not both go on to update it.
#[cfg(feature = "mysql")]
guarded! { sqlx::MySql: '`' "?" "CHAR" "CURRENT_TIMESTAMP(6)" " FOR UPDATE" }

// An update that has found no row has still taken the one place of the writer.
#[cfg(feature = "sqlite")]
guarded! { sqlx::Sqlite: '`' "?" "TEXT" "STRFTIME('%Y-%m-%d %H:%M:%f', 'now')" "" }

/// Where a transition is made: a transaction, or a connection.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no connection that a transition can be made on",
    label = "not a transaction or connection",
    note = "hand on `&mut tx`, or `&mut conn` of a pool; the features `postgres`, `mysql` and `sqlite` say which"
)]
pub trait Connection: Send {
    /// The database.
    type Db: Guarded;

    #[doc(hidden)]
    fn connection(&mut self) -> &mut <Self::Db as Database>::Connection;
}

impl<D: Guarded> Connection for Transaction<'_, D> {
    type Db = D;

    fn connection(&mut self) -> &mut D::Connection {
        self
    }
}

impl<D: Guarded> Connection for PoolConnection<D> {
    type Db = D;

    fn connection(&mut self) -> &mut D::Connection {
        self
    }
}

impl<C: Connection + ?Sized> Connection for &mut C {
    type Db = C::Db;

    fn connection(&mut self) -> &mut <C::Db as Database>::Connection {
        (**self).connection()
    }
}

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
macro_rules! plain {
    ($db:ty, $connection:ty) => {
        impl Connection for $connection {
            type Db = $db;

            fn connection(&mut self) -> &mut Self {
                self
            }
        }
    };
}

#[cfg(feature = "postgres")]
plain! { sqlx::Postgres, sqlx::PgConnection }
#[cfg(feature = "mysql")]
plain! { sqlx::MySql, sqlx::MySqlConnection }
#[cfg(feature = "sqlite")]
plain! { sqlx::Sqlite, sqlx::SqliteConnection }

/// The id as the one argument of a statement.
pub(super) fn argument<'q, D: Guarded, I>(id: &I) -> Result<D::Arguments, Error>
where
    I: Encode<'q, D> + Type<D>,
{
    let mut arguments = D::Arguments::default();
    match arguments.add(id) {
        Ok(()) => Ok(arguments),
        Err(error) => Err(failed::<D>(sqlx::Error::Encode(error))),
    }
}

/// An error of one of the two statements.
pub(super) fn failed<D: Dialect>(error: sqlx::Error) -> Error {
    let (kind, detail) = match &error {
        sqlx::Error::Database(database) => match database.kind() {
            Violated::UniqueViolation
            | Violated::ForeignKeyViolation
            | Violated::NotNullViolation
            | Violated::CheckViolation => {
                (ErrorKind::StateNotChanged, Some("a constraint forbids it"))
            }
            _ => (
                D::code(&**database)
                    .map_or(ErrorKind::StoreUnavailable, |code| D::kind_of_code(&code)),
                None,
            ),
        },
        sqlx::Error::Encode(_) => (ErrorKind::StateNotChanged, Some("the id cannot be sent")),
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => {
            (ErrorKind::StateNotChanged, Some("the column holds no text"))
        }
        _ => (ErrorKind::StoreUnavailable, None),
    };
    let mut out = Error::new(kind);
    if kind == ErrorKind::Schema {
        out = out.detail("the transition's table or one of its columns is missing");
    } else if let Some(detail) = detail {
        out = out.detail(detail);
    }
    out.caused_by(error)
}
