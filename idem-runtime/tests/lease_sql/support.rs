//! What these tests share.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use idem_runtime::__private::{
    Call, Entered, FingerprintBuilder, KeyBuilder, Operation, Run as _, Scope, contract, enter,
    key_part, leave, share,
};
use idem_runtime::bytes::Bytes;
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::key::RecordId;
use idem_runtime::retention::Retention;
use idem_runtime::store::sql::LeasedSql;
use idem_runtime::store::sql::lease::LeaseDialect;
use idem_runtime::store::{Held, Request, Reservation, Reserved, Store, Stored};
use idem_runtime::{Error, ErrorKind};
use idem_test_support::{
    MariaDb, MariaDbDatabase, Postgres, Proxy, Sqlite, SqliteFile, TestDatabase,
};
use sqlx::pool::PoolOptions;
use sqlx::{MySql, MySqlPool, PgPool, Pool};

pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// A store and what must stay as long as it does.
#[derive(Debug)]
pub(crate) struct With<S, G> {
    pub(crate) store: S,
    guard: Arc<G>,
}

impl<S: Store, G> With<S, G> {
    pub(crate) fn new(store: S, guard: &Arc<G>) -> Self {
        Self {
            store,
            guard: Arc::clone(guard),
        }
    }
}

impl<S: Clone, G> Clone for With<S, G> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            guard: Arc::clone(&self.guard),
        }
    }
}

impl<S: Store, G: Send + Sync + 'static> Store for With<S, G> {
    fn namespace(&self) -> &str {
        self.store.namespace()
    }

    async fn reserve(&self, request: &Request<'_>) -> Result<Reserved, Error> {
        self.store.reserve(request).await
    }

    async fn complete(
        &self,
        reservation: &Reservation,
        outcome: Bytes,
        retention: Retention,
    ) -> Result<Held, Error> {
        self.store.complete(reservation, outcome, retention).await
    }

    async fn release(&self, reservation: &Reservation) -> Result<Held, Error> {
        self.store.release(reservation).await
    }

    async fn renew(&self, reservation: &Reservation, lease: Duration) -> Result<Held, Error> {
        self.store.renew(reservation, lease).await
    }

    async fn lookup(&self, id: RecordId) -> Result<Option<Stored>, Error> {
        self.store.lookup(id).await
    }

    async fn forget(&self, id: RecordId) -> Result<bool, Error> {
        self.store.forget(id).await
    }

    async fn purge(&self, limit: usize) -> Result<usize, Error> {
        self.store.purge(limit).await
    }

    fn changed(&self, id: RecordId) -> impl Future<Output = ()> + Send {
        self.store.changed(id)
    }
}

/// A database with the table in it, and a pool.
pub(crate) async fn postgres() -> (TestDatabase, PgPool) {
    let database = Postgres::database().await;
    let pool = database.pool(8).await;
    LeasedSql::new(pool.clone()).migrate().await.unwrap();
    (database, pool)
}

pub(crate) async fn mariadb() -> (MariaDbDatabase, MySqlPool) {
    let database = MariaDb::database().await;
    let pool = database.pool(8).await;
    LeasedSql::new(pool.clone()).migrate().await.unwrap();
    (database, pool)
}

/// A database behind a network.
pub(crate) trait Remote: Sized {
    type Db: LeaseDialect;

    /// With the table in it.
    async fn fresh() -> Self;
    fn proxy(&self) -> Proxy;
    fn pool_through(&self, proxy: &Proxy, max: u32) -> Pool<Self::Db>;
    async fn pool_of(&self, options: PoolOptions<Self::Db>) -> Pool<Self::Db>;
    /// Makes an isolation level that of the session.
    fn level(level: &str) -> String;
}

impl Remote for TestDatabase {
    type Db = sqlx::Postgres;

    async fn fresh() -> Self {
        postgres().await.0
    }

    fn proxy(&self) -> Proxy {
        self.proxy()
    }

    fn pool_through(&self, proxy: &Proxy, max: u32) -> PgPool {
        self.pool_through(proxy, max)
    }

    async fn pool_of(&self, options: PoolOptions<sqlx::Postgres>) -> PgPool {
        options.connect_with(self.options()).await.unwrap()
    }

    fn level(level: &str) -> String {
        format!("SET default_transaction_isolation = '{level}'")
    }
}

impl Remote for MariaDbDatabase {
    type Db = MySql;

    async fn fresh() -> Self {
        mariadb().await.0
    }

    fn proxy(&self) -> Proxy {
        self.proxy()
    }

    fn pool_through(&self, proxy: &Proxy, max: u32) -> MySqlPool {
        self.pool_through(proxy, max)
    }

    async fn pool_of(&self, options: PoolOptions<MySql>) -> MySqlPool {
        options.connect_with(self.options()).await.unwrap()
    }

    fn level(level: &str) -> String {
        // With what is the default from 11.6.2.
        format!(
            "SET SESSION TRANSACTION ISOLATION LEVEL {level}; \
             SET SESSION innodb_snapshot_isolation = ON"
        )
    }
}

/// The same tests on each of them.
macro_rules! on_each {
    ($($test:ident)*) => {
        $crate::support::on_each!(@ on_postgres, TestDatabase: $($test)*);
        $crate::support::on_each!(@ on_mariadb, MariaDbDatabase: $($test)*);
    };
    (@ $module:ident, $database:ident: $($test:ident)*) => {
        mod $module { $(
            #[tokio::test]
            async fn $test() {
                super::$test::<idem_test_support::$database>().await;
            }
        )* }
    };
}
pub(crate) use on_each;

pub(crate) async fn sqlite() -> (SqliteFile, sqlx::SqlitePool) {
    let file = Sqlite::file().await;
    let pool = file.pool(4).await;
    LeasedSql::new(pool.clone()).migrate().await.unwrap();
    (file, pool)
}

pub(crate) fn id(key: impl ToString) -> RecordId {
    RecordId::new("", "test", &[], &key.to_string())
}

pub(crate) fn request(key: impl ToString, lease: Duration) -> Request<'static> {
    let mut payload = [7; 17];
    payload[0] = 1;
    Request::new(id(key), Fingerprint::from_bytes(payload), lease)
}

pub(crate) fn hour() -> Retention {
    Retention::new(Duration::from_secs(3600)).unwrap()
}

#[track_caller]
pub(crate) fn granted(reserved: Reserved) -> Reservation {
    match reserved {
        Reserved::Granted(reservation) => reservation,
        other => panic!("not granted: {other:?}"),
    }
}

/// A service's error.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) Error);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

#[track_caller]
pub(crate) fn refused(answer: Result<u64, Failure>) -> ErrorKind {
    answer.expect_err("an answer").0.kind()
}

const fn operation(name: &'static str) -> Operation {
    Operation::new(Scope::fixed(name)).retention_millis(86_400_000)
}

/// A lease of a second, and no patience.
pub(crate) static REJECTING: Operation = operation("pay").lease_millis(1_000).reject();
/// The same with half a minute of patience.
pub(crate) static WAITING: Operation = operation("pay").lease_millis(1_000).wait_millis(30_000);

/// What the attribute expands to for `fn(store, key) -> Result<u64, Failure>`.
pub(crate) async fn call<S: Store, B: Future<Output = Result<u64, Failure>>>(
    store: &S,
    operation: &'static Operation,
    key: &str,
    body: impl FnOnce() -> B,
) -> Result<u64, Failure> {
    fn here() {}
    let contract = contract::<u64, Failure>();
    let mut builder = KeyBuilder::new(":");
    builder.literal("order:");
    key_part(&mut builder, key);
    let call = Call::prepare(operation, &here, &[], builder, FingerprintBuilder::none())?;
    let mut access = share(store);
    let run = match enter(&mut access, call, &contract).await {
        Entered::Run(run) => run,
        Entered::Answer(answer) => return answer,
    };
    let driven = run.driver().drive(body()).await;
    leave(&mut access, run, driven, &contract).await
}
