//! Where a transition is made, and its one argument.

use sqlx::pool::PoolConnection;
use sqlx::{Database, Encode, Transaction, Type};

use crate::error::{Error, ErrorKind};
use crate::store::sql::Guarded;
use crate::store::sql::guarded::Bound;

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
pub(super) fn argument<'q, D: Guarded, I>(id: &I) -> Result<Bound<D>, Error>
where
    I: Encode<'q, D> + Type<D>,
{
    let mut args = Bound::default();
    match args.add(id) {
        Ok(()) => Ok(args),
        Err(error) => Err(Error::new(ErrorKind::StateNotChanged)
            .detail("the id cannot be sent")
            .caused_by(error)),
    }
}
