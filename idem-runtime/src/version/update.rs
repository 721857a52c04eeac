use std::fmt;

use sqlx::{Encode, Type};

use super::dialect::{Texts, check_columns, texts};
use super::{Values, VersionDialect, VersionError};
use crate::error::Error;
use crate::store::sql::checked_table;

/// An update of one row that names the version it was made from.
///
/// `N` columns get new values, the version is raised by one in the same statement. The texts are
/// put together once; names are checked, values are always bound.
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
/// balance.apply(&mut tx, 7, version, (cents - 100,)).await?;
/// tx.commit().await?;
/// # Ok(()) }
/// ```
pub struct VersionedUpdate<D: VersionDialect, const N: usize> {
    table: String,
    id: String,
    version: String,
    columns: [String; N],
    texts: Texts,
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
    /// # Errors
    /// [`ErrorKind::Schema`](crate::ErrorKind::Schema): a name that is no plain name (ASCII
    /// letters, digits and `_`), or the same one twice.
    pub fn new<C: Into<String>>(table: &str, columns: [C; N]) -> Result<Self, Error> {
        Self::assemble(
            checked_table(table)?.to_owned(),
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
        let texts = texts::<D>(&table, &id, &version, &columns);
        Ok(Self {
            table,
            id,
            version,
            columns,
            texts,
            database: std::marker::PhantomData,
        })
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
        let encode = |e| VersionError::Database(sqlx::Error::Encode(e));
        // SQLite would go on with a float.
        let Some(next) = expected.checked_add(1) else {
            return Err(encode("the version cannot be raised any more".into()));
        };
        let mut args = D::Arguments::default();
        values.bind(&mut args).map_err(encode)?;
        sqlx::Arguments::add(&mut args, id.clone()).map_err(encode)?;
        D::bind_version(&mut args, expected).map_err(encode)?;
        match D::execute(conn, &self.texts.update, args).await? {
            1 => Ok(Updated { version: next }),
            0 => {
                let mut args = D::Arguments::default();
                sqlx::Arguments::add(&mut args, id).map_err(encode)?;
                let found = D::read_version(conn, &self.texts.read, args).await?;
                Err(match found {
                    None => VersionError::NotFound,
                    Some(Some(version)) if version == expected => VersionError::Kept { version },
                    Some(actual) => VersionError::Conflict { expected, actual },
                })
            }
            rows => Err(VersionError::Ambiguous { rows }),
        }
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
