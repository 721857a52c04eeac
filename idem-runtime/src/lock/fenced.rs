//! Writes under a fencing number.

use std::fmt::{self, Write as _};
use std::marker::PhantomData;

use sqlx::error::BoxDynError;
use sqlx::{Encode, SqlStr, Type};

use crate::error::{Effect, Error, Retry};
use crate::protocol::Fence;
use crate::retry::Retryable;
use crate::store::sql::guarded::{Bound, Counter, Places, effect_of, failed, retry_of, shared};
use crate::store::sql::{Guarded, check_columns, checked_user_table, quoted};
use crate::version::Values;

/// An update of one row by the holder of a lock, refused if a later holder has been there.
///
/// The row keeps the highest fencing number that wrote to it, and the statement that writes is the
/// one that compares: nothing that was asked before decides.
///
/// ```sql
/// UPDATE account SET balance = ?, fence = ? WHERE id = ? AND (fence IS NULL OR fence <= ?)
/// ```
///
/// All who write what the lock protects must write so. With no columns at all (`[]` and `()`) it
/// only leaves the number: a row of a table of your own then stands for whatever else its
/// *transaction* writes, also in other tables.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # async fn example(
/// #     pool: sqlx::SqlitePool,
/// #     locks: idem_runtime::lock::LeaseLock<idem_runtime::store::sql::LeasedSql<sqlx::Sqlite>>,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// use idem_runtime::lock::FencedUpdate;
/// use sqlx::Sqlite;
///
/// let balance = FencedUpdate::<Sqlite, _>::new("account", ["balance"])?;
///
/// let guard = locks.acquire("account:7").await?;
/// let mut conn = pool.acquire().await?;
/// balance.apply(&mut conn, guard.fence(), 7_i64, (100_i64,)).await?.done()?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
pub struct FencedUpdate<D: Guarded, const N: usize> {
    table: String,
    id: String,
    fence: String,
    columns: [String; N],
    update: SqlStr,
    read: SqlStr,
    counter: Counter,
    database: PhantomData<fn() -> D>,
}

/// What came of a write under a fencing number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a write that is not `Done` did not happen"]
#[non_exhaustive]
pub enum Written {
    /// The row has the values, and this number.
    Done,
    /// A later holder has written: this one lost its lock. Nothing was changed.
    #[non_exhaustive]
    Fenced {
        /// The number that the row has.
        current: Fence,
    },
    /// There is no such row.
    NotFound,
}

impl Written {
    /// For a function that goes on only if it is done.
    ///
    /// # Errors
    /// [`FenceError::Fenced`], [`FenceError::NotFound`].
    pub fn done(self) -> Result<(), FenceError> {
        match self {
            Self::Done => Ok(()),
            Self::Fenced { current } => Err(FenceError::Fenced { current }),
            Self::NotFound => Err(FenceError::NotFound),
        }
    }
}

/// Why a write under a fencing number was not made.
#[derive(Debug)]
#[non_exhaustive]
pub enum FenceError {
    /// A later holder has written: this one lost its lock. Roll back.
    #[non_exhaustive]
    Fenced {
        /// The number that the row has.
        current: Fence,
    },
    /// There is no row with this id.
    NotFound,
    /// The row's number allows the write and the database did not make it: a trigger, a rule or a
    /// row security policy keeps the row, or it was inserted in this very moment.
    Kept,
    /// More than one row has this id: the id column is not unique. Roll back.
    Ambiguous {
        /// How many rows were changed.
        rows: u64,
    },
    /// The id or a value cannot be sent, or the number is beyond a 64-bit integer. Nothing was sent.
    NotSent(BoxDynError),
    /// The update failed: the table or the types do not fit, or the database.
    Failed(Error),
    /// A statement of the caller's own failed, which `?` has brought here.
    Database(sqlx::Error),
}

impl<D: Guarded, const N: usize> FencedUpdate<D, N> {
    /// Updates `columns` of `table` (`name` or `schema.name`), found by the column `id`, with the
    /// fencing number in the column `fence`: a 64-bit integer, NULL or zero before the first write.
    ///
    /// Names are those of the catalogue: they are quoted, so a column may be called `user`, and
    /// Postgres tells `Account` from `account`.
    ///
    /// # Errors
    /// [`ErrorKind::TableMismatch`](crate::ErrorKind::TableMismatch): a name that is not a plain name
    /// (ASCII letters, digits and `_`), or the same one twice.
    pub fn new<C: Into<String>>(table: &str, columns: [C; N]) -> Result<Self, Error> {
        let table = checked_user_table(table)?.to_owned();
        let columns = columns.map(Into::into);
        Self::assemble(table, "id".to_owned(), "fence".to_owned(), columns)
    }

    /// Finds the row by another column, which must be unique.
    ///
    /// # Errors
    /// As [`FencedUpdate::new`].
    pub fn id_column(self, id: &str) -> Result<Self, Error> {
        Self::assemble(self.table, id.to_owned(), self.fence, self.columns)
    }

    /// Keeps the number in another column.
    ///
    /// # Errors
    /// As [`FencedUpdate::new`].
    pub fn fence_column(self, fence: &str) -> Result<Self, Error> {
        Self::assemble(self.table, self.id, fence.to_owned(), self.columns)
    }

    fn assemble(
        table: String,
        id: String,
        fence: String,
        columns: [String; N],
    ) -> Result<Self, Error> {
        check_columns([&id, &fence].into_iter().chain(&columns))?;
        let (update, read) = texts::<D>(&table, &id, &fence, &columns);
        Ok(Self {
            table,
            id,
            fence,
            columns,
            update,
            read,
            counter: Counter::default(),
            database: PhantomData,
        })
    }

    /// Looks the number's column up: that it is there and is an integer. For the start of a service.
    ///
    /// Without it the type is looked up, once for each object, by the first [`apply`](Self::apply).
    ///
    /// # Errors
    /// [`FenceError::Failed`] with [`ErrorKind::TableMismatch`](crate::ErrorKind::TableMismatch), or
    /// with the database's error.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn check(&self, conn: &mut D::Connection) -> Result<(), FenceError> {
        let looked = self
            .counter
            .check::<D>(conn, &self.table, &self.fence, true);
        Ok(looked.await?)
    }

    /// Writes the values into the row with this `id`, unless a higher number has.
    ///
    /// One holder may write as often as it likes. In a transaction pass `&mut tx`: of two holders
    /// the second one waits for the first one's transaction, and is then refused or not by what it
    /// left. After [`Written::Fenced`] roll back: whatever else the transaction wrote was written
    /// without the lock.
    ///
    /// # Errors
    /// Those of the database, with sqlx's as the source; [`FenceError::Kept`] and
    /// [`FenceError::Ambiguous`].
    ///
    /// # Cancel safety
    /// The write may or may not have been made; in a transaction, roll it back.
    pub async fn apply<'t, I, V>(
        &self,
        conn: &mut D::Connection,
        fence: Fence,
        id: I,
        values: V,
    ) -> Result<Written, FenceError>
    where
        I: Encode<'t, D> + Type<D> + Clone + Send,
        V: Values<'t, D, N> + Send,
    {
        let number = i64::try_from(fence.get()).map_err(|e| FenceError::NotSent(e.into()))?;
        let look = self.counter.before::<D>(conn, &self.table, &self.fence);
        look.await?;
        let mut args = Bound::<D>::default();
        let bound = values
            .bind(&mut args)
            .and_then(|()| args.add_integer(number))
            .and_then(|()| args.add(id.clone()))
            .and_then(|()| args.add_integer(number));
        bound.map_err(FenceError::NotSent)?;
        let (sql, args) = args.of(&self.update);
        let changed = D::execute(conn, &sql, args).await;
        let changed = changed.map_err(|error| failed::<D>(&self.table, error))?;
        let look = self.counter.after::<D>(conn, &self.table, &self.fence);
        look.await?;
        match changed {
            0 => self.unchanged(conn, id, number).await,
            1 => Ok(Written::Done),
            rows => Err(FenceError::Ambiguous { rows }),
        }
    }

    /// Why no row was found.
    async fn unchanged<'t, I>(
        &self,
        conn: &mut D::Connection,
        id: I,
        number: i64,
    ) -> Result<Written, FenceError>
    where
        I: Encode<'t, D> + Type<D> + Send,
    {
        let mut args = Bound::<D>::default();
        args.add(id).map_err(FenceError::NotSent)?;
        let (sql, args) = args.of(&self.read);
        let found = D::read_integer(conn, sql, args).await;
        match found.map_err(|error| failed::<D>(&self.table, error).effect_is(Effect::None))? {
            None => Ok(Written::NotFound),
            Some(Some(current)) if current > number => Ok(Written::Fenced {
                current: Fence::new(u64::try_from(current).unwrap_or_default()),
            }),
            // Numbers only grow, so it was found; it had these values already.
            Some(Some(current)) if current == number && D::MAY_COUNT_CHANGED => Ok(Written::Done),
            Some(_) => Err(FenceError::Kept),
        }
    }

    /// The statement, to be looked at.
    #[must_use]
    pub fn statement(&self) -> &str {
        self.update.as_str()
    }
}

/// The update and the read; the names have been checked.
fn texts<D: Guarded>(table: &str, id: &str, fence: &str, columns: &[String]) -> (SqlStr, SqlStr) {
    let (table, id, fence) = (quoted::<D>(table), quoted::<D>(id), quoted::<D>(fence));
    let mut places = Places::default();
    let mut update = format!("{} {table} SET ", D::UPDATE);
    for column in columns {
        let _ = write!(update, "{} = {}, ", quoted::<D>(column), places.next::<D>());
    }
    let _ = write!(update, "{fence} = {}", places.next::<D>());
    let _ = write!(update, " WHERE {id} = {}", places.next::<D>());
    let _ = write!(
        update,
        " AND ({fence} IS NULL OR {fence} <= {})",
        places.next::<D>()
    );
    let read = format!(
        "SELECT CAST({fence} AS {}) FROM {table} WHERE {id} = {}{}",
        D::INTEGER,
        Places::default().next::<D>(),
        D::LATEST
    );
    (shared(update), shared(read))
}

impl FenceError {
    /// What it means for the write: [`Effect::None`] where nothing of it remains.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::Fenced { .. } | Self::NotFound | Self::Kept | Self::NotSent(_) => Effect::None,
            Self::Ambiguous { .. } => Effect::Done,
            Self::Failed(error) => error.effect(),
            Self::Database(error) => effect_of(error),
        }
    }

    /// Whether and how to repeat it. A lock that is lost has to be acquired anew.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Fenced { .. }
            | Self::NotFound
            | Self::Kept
            | Self::NotSent(_)
            | Self::Ambiguous { .. } => Retry::Never,
            Self::Failed(error) => error.retry(),
            Self::Database(error) => retry_of(error),
        }
    }

    /// Whether the whole transaction is worth another try, under the lock.
    #[must_use]
    pub fn calls_for_retry(&self) -> bool {
        self.retry() == Retry::NewTransaction
    }
}

impl Retryable for FenceError {
    fn calls_for_retry(&self) -> bool {
        Self::calls_for_retry(self)
    }
}

impl fmt::Display for FenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced { current } => write!(
                f,
                "a later holder of the lock has written, under {current} (nothing was changed; roll \
                 back, the lock is lost)"
            ),
            Self::NotFound => {
                f.write_str("there is no row with this id (nothing was changed; do not repeat)")
            }
            Self::Kept => f.write_str(
                "the row is there, its fencing number allows the write, and it was not updated: a \
                 trigger, a rule or a policy keeps it",
            ),
            Self::Ambiguous { rows } => write!(
                f,
                "{rows} rows have this id and were changed: roll back, the id column is not unique"
            ),
            Self::NotSent(_) => f.write_str(
                "the id, the number or a value of the fenced update cannot be sent (nothing was sent)",
            ),
            Self::Failed(error) => write!(f, "the fenced update: {error}"),
            Self::Database(_) => {
                f.write_str("a statement in the transaction of the fenced update failed")
            }
        }
    }
}

impl std::error::Error for FenceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotSent(error) => Some(&**error),
            Self::Failed(error) => Some(error),
            Self::Database(error) => Some(error),
            _ => None,
        }
    }
}

impl From<Error> for FenceError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<sqlx::Error> for FenceError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl<D: Guarded, const N: usize> Clone for FencedUpdate<D, N> {
    fn clone(&self) -> Self {
        Self {
            table: self.table.clone(),
            id: self.id.clone(),
            fence: self.fence.clone(),
            columns: self.columns.clone(),
            update: self.update.clone(),
            read: self.read.clone(),
            counter: self.counter.clone(),
            database: PhantomData,
        }
    }
}

impl<D: Guarded, const N: usize> fmt::Debug for FencedUpdate<D, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FencedUpdate")
            .field(&self.update.as_str())
            .finish()
    }
}
