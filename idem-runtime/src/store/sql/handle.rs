use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use sqlx::{Pool, SqlSafeStr, SqlStr, Transaction};

use super::dialect::{Dialect, Statements};
use super::names::checked_own_table;
use crate::error::Error;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::key::RecordId;
use crate::store::{Kept, Until};

/// The table that annotated functions use unless a [`Records`] names another one.
pub(crate) const DEFAULT_TABLE: &str = "idem_record";

/// Where records are kept: table and namespace. Without one, the table `idem_record` that the
/// connection's search path finds.
///
/// Where one pool serves several schemas and its sessions choose theirs (`SET search_path`, `USE`), name
/// the table with its schema, or give each tenant a [`namespace`](Self::namespace).
///
/// ```
/// use idem_runtime::store::sql::Records;
///
/// # fn main() -> Result<(), idem_runtime::Error> {
/// let records = Records::in_table("billing.idem_record")?.namespace("billing");
/// # let _ = records; Ok(())
/// # }
/// ```
///
/// It is cheap to clone and used as `store = "self.records.on(tx)"`, or, for the framework's own
/// transaction, `store = "self.records.pool(&self.pool)"`.
#[derive(Clone)]
pub struct Records {
    table: Arc<str>,
    namespace: Arc<str>,
    takes_locks: bool,
    statements: Arc<[std::sync::OnceLock<Statements>; 3]>,
    begin: Option<SqlStr>,
}

impl Records {
    /// Records in another table, `name` or `schema.name`.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] if a name is not made of ASCII letters, digits and `_`, does not begin
    /// with a letter or `_`, or is longer than 52 characters.
    pub fn in_table(table: &str) -> Result<Self, Error> {
        Ok(Self {
            table: checked_own_table(table)?.into(),
            namespace: "".into(),
            takes_locks: true,
            statements: Arc::default(),
            begin: None,
        })
    }

    /// Separates these records from others in the same table; part of every record's id.
    #[must_use]
    pub fn namespace(mut self, namespace: impl AsRef<str>) -> Self {
        self.namespace = namespace.as_ref().into();
        self
    }

    /// Without an advisory lock for each call (Postgres): reservations are kept apart by the unique
    /// index alone. For transactions of more calls than the server's lock table has room for, and for
    /// databases that speak Postgres' protocol and have no advisory locks. The other databases know no
    /// difference.
    ///
    /// A duplicate of a running call then waits **inside the database**, until the other transaction
    /// has ended: `wait` and `reject` do not bound that, the session's `lock_timeout` does, after which
    /// the answer is [`ErrorKind::RetryTransaction`]. A call that is dropped while it waits leaves a
    /// transaction that can only be rolled back. [`status`](crate::status) does not see who runs a
    /// call. Transactions that make several calls in opposite order end in a deadlock that the database
    /// finds: sort them.
    #[must_use]
    pub fn without_advisory_locks(mut self) -> Self {
        self.takes_locks = false;
        self.statements = Arc::default();
        self
    }

    /// These records, written by the caller's transaction.
    pub fn on<'a, 'c, D: Dialect>(&self, tx: &'a mut Transaction<'c, D>) -> OnTx<'a, 'c, D> {
        OnTx {
            records: self.clone(),
            tx,
        }
    }

    /// These records, written by transactions of the framework's own.
    #[must_use]
    pub fn pool<D: Dialect>(&self, pool: &Pool<D>) -> PoolWith<D> {
        PoolWith {
            records: self.clone(),
            pool: pool.clone(),
        }
    }

    /// How transactions of the framework's own are begun, if not as usual.
    pub(crate) fn begin_statement(&self) -> Option<SqlStr> {
        self.begin.clone()
    }

    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    pub(crate) fn table_name(&self) -> Arc<str> {
        Arc::clone(&self.table)
    }

    pub(crate) fn takes_locks(&self) -> bool {
        self.takes_locks
    }

    pub(crate) fn namespace_str(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn statements<D: Dialect>(&self) -> &Statements {
        self.statements[D::INDEX].get_or_init(|| match self.takes_locks {
            true => D::statements(&self.table),
            false => D::statements_without_locks(&self.table),
        })
    }

    /// These records with other statements for one database.
    #[cfg(all(feature = "mysql", feature = "testing"))]
    pub(super) fn with_statements<D: Dialect>(mut self, statements: Statements) -> Self {
        let mut all: [_; 3] = Default::default();
        all[D::INDEX] = std::sync::OnceLock::from(statements);
        self.statements = Arc::new(all);
        self
    }

    /// The records of functions that name none.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: std::sync::LazyLock<Records> = std::sync::LazyLock::new(Records::default);
        &SHARED
    }
}

impl Default for Records {
    fn default() -> Self {
        Self {
            table: DEFAULT_TABLE.into(),
            namespace: "".into(),
            takes_locks: true,
            statements: Arc::default(),
            begin: None,
        }
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records")
            .field("table", &self.table)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

/// The caller's transaction together with a [`Records`].
#[derive(Debug)]
pub struct OnTx<'a, 'c, D: Dialect> {
    pub(crate) records: Records,
    pub(crate) tx: &'a mut Transaction<'c, D>,
}

/// A pool together with a [`Records`].
#[derive(Debug, Clone)]
pub struct PoolWith<D: Dialect> {
    records: Records,
    pool: Pool<D>,
}

impl<D: Dialect> PoolWith<D> {
    /// Begins the body's transactions with this statement instead of the usual one, as
    /// [`Pool::begin_with`] does: for an isolation level, for example.
    ///
    /// | database | for example |
    /// |---|---|
    /// | Postgres | `BEGIN ISOLATION LEVEL SERIALIZABLE` |
    /// | MySQL, MariaDB | `SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; START TRANSACTION` |
    /// | SQLite | `BEGIN EXCLUSIVE`; the usual one is `BEGIN IMMEDIATE` |
    ///
    /// Under `REPEATABLE READ` and `SERIALIZABLE` the database gives transactions up that meet others
    /// (`RetryTransaction`): say `retry = n` at the function. A statement that begins no transaction,
    /// or one that may not write, fails the call before its body.
    ///
    /// ```
    /// # #[cfg(feature = "postgres")]
    /// # fn example(records: idem_runtime::store::sql::Records, pool: sqlx::PgPool) {
    /// let store = records.pool(&pool).begin_with("BEGIN ISOLATION LEVEL SERIALIZABLE");
    /// # let _ = store; }
    /// ```
    #[must_use]
    pub fn begin_with(mut self, statement: impl SqlSafeStr) -> Self {
        self.records.begin = Some(statement.into_sql_str());
        self
    }
}

/// A pool whose transactions the framework may begin, commit and roll back itself.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no pool that the framework can open a transaction from",
    label = "not a pool",
    note = "`tx = name` opens a transaction for the body: the store must be a `PgPool`, a `MySqlPool`, a `SqlitePool`, or `records.pool(&pool)`",
    note = "for a transaction of your own leave `tx` out and name the transaction as the store"
)]
pub trait OwnPool: Sync {
    /// The database.
    type Db: Dialect;
    #[doc(hidden)]
    fn pool(&self) -> &Pool<Self::Db>;
    #[doc(hidden)]
    fn records(&self) -> &Records;
    /// What a front knows, if there is one.
    #[doc(hidden)]
    fn ask(&self, _id: RecordId) -> impl Future<Output = Asked> + Send {
        std::future::ready(Asked::Nothing)
    }
    /// The front, to be filled.
    #[doc(hidden)]
    fn fill(&self) -> Option<Arc<dyn Fill>> {
        None
    }
}

/// What a front says to a call.
#[doc(hidden)]
#[derive(Debug)]
#[non_exhaustive]
pub enum Asked {
    /// Answer from this.
    Kept(Kept),
    /// Nothing.
    Nothing,
    /// Nothing, and looking the key up before reserving it is in vain.
    New,
}

/// A front that takes copies of committed records.
#[doc(hidden)]
pub trait Fill: Send + Sync {
    /// Puts one there, if it can.
    fn fill<'f>(
        &'f self,
        id: RecordId,
        kept: &'f Kept,
        until: Until,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'f>>;
}

impl<D: Dialect> OwnPool for Pool<D> {
    type Db = D;

    fn pool(&self) -> &Pool<D> {
        self
    }

    fn records(&self) -> &Records {
        Records::shared()
    }
}

impl<D: Dialect> OwnPool for PoolWith<D> {
    type Db = D;

    fn pool(&self) -> &Pool<D> {
        &self.pool
    }

    fn records(&self) -> &Records {
        &self.records
    }
}

macro_rules! by_deref {
    ($($t:ty)*) => {$(
        impl<P: OwnPool + ?Sized + Send> OwnPool for $t {
            type Db = P::Db;

            fn pool(&self) -> &Pool<Self::Db> {
                (**self).pool()
            }

            fn records(&self) -> &Records {
                (**self).records()
            }

            fn ask(&self, id: RecordId) -> impl Future<Output = Asked> + Send {
                (**self).ask(id)
            }

            fn fill(&self) -> Option<Arc<dyn Fill>> {
                (**self).fill()
            }
        }
    )*};
}

by_deref! { &P &mut P Box<P> Arc<P> }
