//! Records in a database, guarded by a lease: for functions whose effects are elsewhere (a payment
//! provider, a mail, another service), with the durability of a database.
//!
//! A function whose effects are *in* this database is better served by its transaction, which needs
//! neither lease nor take-over.
//!
//! # What holds
//! * **One statement is one step**, in a transaction of its own. A reservation is granted to one
//!   owner until its lease is over by the *database's* clock; a step of an owner that lost it
//!   changes nothing.
//! * **Fences grow**, whatever clocks do and whether or not the row was removed in between: they come
//!   from a sequence (Postgres), from the table's `AUTO_INCREMENT` (MySQL, MariaDB), or from a counter
//!   that a removed row raises (SQLite). On MySQL and MariaDB empty the table by `DELETE`: `TRUNCATE`
//!   begins the numbers anew.
//! * **A request that is sent twice is one request**: its owner is told from all others. A
//!   reservation whose answer was lost is asked for once more on another connection.
//! * **Fail closed.** A database that is down, slower than the limit or has no connection to spare
//!   refuses the call; the body does not run.
//! * A reservation is on the disk when it is granted, as far as the database's own settings say so
//!   (`synchronous_commit`, `innodb_flush_log_at_trx_commit`, `synchronous`).
//!
//! # What does not
//! * A **failover** to a replica that had not got a reservation forgets it, and its fence.
//! * A **lease is time**: a process that is stopped past its lease goes on afterwards. Hand the
//!   [`fence`](crate::engine::fence) to what the body writes to.
//!
//! # Cost
//! In Postgres a first run takes two statements and a replay one, which writes nothing. Elsewhere
//! a record is looked up before it is reserved, since looking up takes no lock: three statements.
//!
//! # What is tested
//! Postgres, SQLite and MariaDB 10.11. On MySQL 8 the same statements are sent as on MariaDB; none
//! was at hand to run them.

mod dialect;
mod lanes;
mod lent;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
mod steps;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sqlx::Pool;
use sqlx::pool::PoolConnection;
use tokio::sync::{Notify, Semaphore};

pub use dialect::{Claim, LeaseDialect, LeaseRow, LeaseStatements, NewLease};

use super::names::checked_own_table;
use super::schema::{self, Migration, Schema};
use crate::error::Error;
use crate::key::RecordId;
use lanes::Lanes;

/// The table unless another one is named.
pub const DEFAULT_TABLE: &str = "idem_lease";

/// How long one step may take unless it is told otherwise.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(5);

const SHARDS: usize = 64;

/// A leased store in a database. See the [module](self) for what it promises.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn example(pool: sqlx::PgPool) -> Result<(), idem_runtime::Error> {
/// use idem_runtime::store::sql::LeasedSql;
///
/// let store = LeasedSql::new(pool);
/// store.migrate().await?;
/// store.check().await?;
/// # Ok(()) }
/// ```
pub struct LeasedSql<D: LeaseDialect> {
    inner: Arc<Inner<D>>,
}

struct Inner<D: LeaseDialect> {
    pool: Pool<D>,
    table: String,
    namespace: String,
    limit: Duration,
    statements: LeaseStatements,
    changed: [Notify; SHARDS],
    lanes: Lanes,
    /// Leaves a connection to those who have a reservation: asking for one must not keep its owner
    /// from ending it.
    reserving: Semaphore,
    /// Connections for those who have a reservation, where others hold all of the pool's: bodies do,
    /// and must not keep each other's leases from being renewed. Opened when they are needed.
    owners: OnceLock<Pool<D>>,
}

/// How long the pool is waited for before another connection is opened.
const PATIENCE: Duration = Duration::from_millis(20);
/// After how long an unused one of those is closed.
const IDLE: Duration = Duration::from_secs(10);
/// How many connections those who have a reservation may open beside the pool.
const OWNERS: u32 = 2;

/// How a [`LeasedSql`] is made.
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    table: String,
    namespace: String,
    limit: Duration,
}

impl Builder {
    /// Another table, `name` or `schema.name`.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`](crate::ErrorKind::Schema) if it cannot be a table's name.
    pub fn table(mut self, table: &str) -> Result<Self, Error> {
        checked_own_table(table)?.clone_into(&mut self.table);
        Ok(self)
    }

    /// Separates these records from others in the same table; part of every record's id.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// How long one step may take, waiting for a connection and trying again included. Choose it
    /// well below the lease.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The store.
    #[must_use]
    pub fn build<D: LeaseDialect>(self, pool: Pool<D>) -> LeasedSql<D> {
        let connections = pool.options().get_max_connections() as usize;
        LeasedSql {
            inner: Arc::new(Inner {
                pool,
                statements: D::lease_statements(&self.table),
                table: self.table,
                namespace: self.namespace,
                limit: self.limit,
                changed: std::array::from_fn(|_| Notify::new()),
                lanes: Lanes::default(),
                reserving: Semaphore::new(connections.saturating_sub(1).max(1)),
                owners: OnceLock::new(),
            }),
        }
    }
}

impl<D: LeaseDialect> LeasedSql<D> {
    /// A store in the table `idem_lease`.
    #[must_use]
    pub fn new(pool: Pool<D>) -> Self {
        Self::builder().build(pool)
    }

    /// A store made to measure.
    pub fn builder() -> Builder {
        Builder {
            table: DEFAULT_TABLE.to_owned(),
            namespace: String::new(),
            limit: DEFAULT_LIMIT,
        }
    }

    /// The schema's steps, to be printed into a migration tool of one's own.
    #[must_use]
    pub fn migrations(&self) -> Vec<Migration> {
        self.schema().migrations::<D>()
    }

    /// Creates or updates the table. Safe to run in many processes at once.
    ///
    /// # Errors
    /// The database cannot be used, or a table of that name is there that is not ours.
    ///
    /// # Cancel safety
    /// All of it is done or nothing.
    pub async fn migrate(&self) -> Result<(), Error> {
        schema::migrate(&self.inner.pool, self.schema()).await
    }

    /// Checks the schema: version, columns, that the id alone is the primary key, and what keeps
    /// fences growing.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`](crate::ErrorKind::Schema) with what is wrong; or the database cannot be used.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn check(&self) -> Result<(), Error> {
        schema::check(&self.inner.pool, self.schema()).await
    }

    fn schema(&self) -> Schema<'_> {
        Schema::new(D::lease_shape(), &self.inner.table)
    }

    /// A connection for one who has a reservation: the pool's, or one of its own where others hold all
    /// of those.
    async fn connection(&self) -> Result<PoolConnection<D>, sqlx::Error> {
        let pooled = tokio::select! {
            biased;
            pooled = self.inner.pool.acquire() => pooled,
            own = async {
                tokio::time::sleep(PATIENCE).await;
                self.owners().acquire().await
            } => return own,
        };
        match pooled {
            Err(sqlx::Error::PoolTimedOut) => self.owners().acquire().await,
            pooled => pooled,
        }
    }

    /// As the pool is, with its hooks; made when it is needed first.
    fn owners(&self) -> &Pool<D> {
        self.inner.owners.get_or_init(|| {
            let pool = &self.inner.pool;
            let options = pool.options().clone().min_connections(0);
            options
                .max_connections(OWNERS)
                .idle_timeout(IDLE)
                .connect_lazy_with(pool.connect_options().as_ref().clone())
        })
    }

    fn statements(&self) -> &LeaseStatements {
        &self.inner.statements
    }

    fn changed_shard(&self, id: RecordId) -> &Notify {
        // The id is a digest: any of its bytes spreads evenly.
        &self.inner.changed[usize::from(id.as_bytes()[15]) % SHARDS]
    }
}

impl<D: LeaseDialect> Clone for LeasedSql<D> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<D: LeaseDialect> fmt::Debug for LeasedSql<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeasedSql")
            .field("table", &self.inner.table)
            .field("namespace", &self.inner.namespace)
            .finish_non_exhaustive()
    }
}
