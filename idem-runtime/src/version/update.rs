//! An update of one row that names the version it was made from.

use std::fmt;

use sqlx::{Encode, Type};

use super::texts::Texts;
use super::{Values, VersionDialect, VersionError};
use crate::error::Error;
use crate::store::sql::guarded::{Bound, Counter, failed};
use crate::store::sql::{check_columns, checked_user_table};

/// An update of one row that names the version it was made from.
///
/// `N` columns get new values, the version is raised by one in the same statement. The texts are
/// put together once; names are checked and quoted, values are always bound. One object takes ids and
/// values of any types that the columns take.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # async fn example(pool: sqlx::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
/// use idem_runtime::version::VersionedUpdate;
/// use sqlx::Sqlite;
///
/// let balance = VersionedUpdate::<Sqlite, _>::new("account", ["balance"])?;
///
/// let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
/// let (cents, version): (i64, i64) =
///     sqlx::query_as("SELECT balance, version FROM account WHERE id = 7")
///         .fetch_one(&mut *tx)
///         .await?;
/// balance.apply(&mut tx, 7_i64, version, (cents - 100,)).await?;
/// tx.commit().await?;
/// # Ok(()) }
/// ```
pub struct VersionedUpdate<D: VersionDialect, const N: usize> {
    table: String,
    id: String,
    version: String,
    columns: [String; N],
    texts: Texts,
    counter: Counter,
    database: std::marker::PhantomData<fn() -> D>,
}

/// The row was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Updated {
    /// The version that the row has now, for the next change.
    pub version: i64,
}

impl<D: VersionDialect, const N: usize> VersionedUpdate<D, N> {
    /// Updates `columns` of `table` (`name` or `schema.name`), found by the column `id`, with the
    /// version in the column `version`, an integer that is not NULL.
    ///
    /// Names are those of the catalogue: they are quoted, so a column may be called `user`, and
    /// Postgres tells `Account` from `account`.
    ///
    /// # Errors
    /// [`ErrorKind::TableMismatch`](crate::ErrorKind::TableMismatch): a name that is not a plain name
    /// (ASCII letters, digits and `_`), or the same one twice.
    pub fn new<C: Into<String>>(table: &str, columns: [C; N]) -> Result<Self, Error> {
        Self::assemble(
            checked_user_table(table)?.to_owned(),
            "id".to_owned(),
            "version".to_owned(),
            columns.map(Into::into),
        )
    }

    /// Finds the row by another column, which must be unique.
    ///
    /// # Errors
    /// As [`VersionedUpdate::new`].
    pub fn id_column(self, id: &str) -> Result<Self, Error> {
        Self::assemble(self.table, id.to_owned(), self.version, self.columns)
    }

    /// Keeps the version in another column.
    ///
    /// # Errors
    /// As [`VersionedUpdate::new`].
    pub fn version_column(self, version: &str) -> Result<Self, Error> {
        Self::assemble(self.table, self.id, version.to_owned(), self.columns)
    }

    fn assemble(
        table: String,
        id: String,
        version: String,
        columns: [String; N],
    ) -> Result<Self, Error> {
        check_columns([&id, &version].into_iter().chain(&columns))?;
        let texts = Texts::of::<D>(&table, &id, &version, &columns);
        Ok(Self {
            table,
            id,
            version,
            columns,
            texts,
            counter: Counter::default(),
            database: std::marker::PhantomData,
        })
    }

    /// Looks the version's column up: that it is there, is an integer and is never NULL. For the
    /// start of a service.
    ///
    /// Without it the type alone is looked up, once for each object, by the first
    /// [`apply`](Self::apply).
    ///
    /// # Errors
    /// [`VersionError::Failed`] with [`ErrorKind::TableMismatch`](crate::ErrorKind::TableMismatch),
    /// or with the database's error.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn check(&self, conn: &mut D::Connection) -> Result<(), VersionError> {
        let looked = self
            .counter
            .check::<D>(conn, &self.table, &self.version, false);
        Ok(looked.await?)
    }

    /// Changes the row with this `id` if it has the version `expected`, and tells its new version.
    ///
    /// In a transaction pass `&mut tx`. What the error leaves to do is a rollback: other changes
    /// of the transaction may rest on what was stale.
    ///
    /// # Errors
    /// [`VersionError::Conflict`] and [`VersionError::NotFound`] are told apart by a second read,
    /// which sees what is committed now wherever the isolation level allows it. On MySQL that read
    /// locks the row, or the gap where it would be, to the end of the transaction.
    ///
    /// # Cancel safety
    /// The update may or may not have been made; in a transaction, roll it back.
    pub async fn apply<'t, I, V>(
        &self,
        conn: &mut D::Connection,
        id: I,
        expected: i64,
        values: V,
    ) -> Result<Updated, VersionError>
    where
        I: Encode<'t, D> + Type<D> + Clone + Send,
        V: Values<'t, D, N> + Send,
    {
        // SQLite would go on with a float.
        let Some(next) = expected.checked_add(1) else {
            return Err(VersionError::NotSent(
                "the version cannot be raised any more".into(),
            ));
        };
        let look = self.counter.before::<D>(conn, &self.table, &self.version);
        look.await?;
        let mut args = Bound::<D>::default();
        let bound = values
            .bind(&mut args)
            .and_then(|()| args.add(id.clone()))
            .and_then(|()| args.add_integer(expected));
        bound.map_err(VersionError::NotSent)?;
        let (sql, args) = args.of(&self.texts.update);
        let changed = D::execute(conn, &sql, args).await;
        let changed = changed.map_err(|error| self.failed(error))?;
        let look = self.counter.after::<D>(conn, &self.table, &self.version);
        look.await?;
        match changed {
            1 => Ok(Updated { version: next }),
            0 => Err(self.unchanged(conn, id, expected).await),
            rows => Err(VersionError::Ambiguous { rows }),
        }
    }

    /// Why no row was found.
    async fn unchanged<'t, I>(&self, conn: &mut D::Connection, id: I, expected: i64) -> VersionError
    where
        I: Encode<'t, D> + Type<D> + Send,
    {
        let mut args = Bound::<D>::default();
        if let Err(error) = args.add(id) {
            return VersionError::NotSent(error);
        }
        let (sql, args) = args.of(&self.texts.read);
        match D::read_integer(conn, sql, args).await {
            Ok(None) => VersionError::NotFound,
            Ok(Some(Some(version))) if version == expected => VersionError::Kept { version },
            Ok(Some(actual)) => VersionError::Conflict { expected, actual },
            // Nothing was changed, whatever becomes of the look.
            Err(error) => VersionError::Failed(
                failed::<D>(&self.table, error).effect_is(crate::error::Effect::None),
            ),
        }
    }

    pub(super) fn table(&self) -> &str {
        &self.table
    }

    fn failed(&self, error: sqlx::Error) -> VersionError {
        VersionError::Failed(failed::<D>(&self.table, error))
    }
}

impl<D: VersionDialect, const N: usize> Clone for VersionedUpdate<D, N> {
    fn clone(&self) -> Self {
        Self {
            table: self.table.clone(),
            id: self.id.clone(),
            version: self.version.clone(),
            columns: self.columns.clone(),
            texts: self.texts.clone(),
            counter: self.counter.clone(),
            database: std::marker::PhantomData,
        }
    }
}

impl<D: VersionDialect, const N: usize> fmt::Debug for VersionedUpdate<D, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VersionedUpdate")
            .field(&self.texts.update.as_str())
            .finish()
    }
}
