//! What these tests share: a kind of lock each, on a place of its own.

use std::any::Any;
use std::future::Future;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use idem_runtime::Error;
use idem_runtime::bytes::Bytes;
use idem_runtime::clock::Moment;
use idem_runtime::key::RecordId;
use idem_runtime::lock::advisory::AdvisoryLock;
use idem_runtime::lock::{Holder, LeaseLock, LockError, LockGuard, OnDrop};
use idem_runtime::retention::Retention;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::sql::LeasedSql;
use idem_runtime::store::{Held, Request, Reservation, Reserved, Store, Stored};
use idem_test_support::child::Args;
use idem_test_support::{MariaDb, Postgres, Redis, Sqlite, mariadb, postgres};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

/// Longer than any test: what is free before is free by other means.
pub(crate) const LONG: Duration = Duration::from_secs(600);
/// Patience with a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The stores whose locks other processes see.
pub(crate) const SHARED: [&str; 4] = ["redis", "postgres", "sqlite", "mysql"];
/// The stores of leases.
pub(crate) const LEASED: [&str; 5] = ["memory", "redis", "postgres", "sqlite", "mysql"];
/// All kinds of locks.
pub(crate) const ALL: [&str; 6] = ["memory", "redis", "postgres", "sqlite", "mysql", "session"];

/// A store of any kind, with the number of requests that it got.
#[derive(Clone, Debug)]
pub(crate) struct AnyStore {
    kind: Kind,
    pub(crate) asked: Arc<AtomicU64>,
    hints: Hints,
    /// The next release never arrives, and the one after that when somebody else has the record.
    pub(crate) late: Option<Arc<AtomicBool>>,
    _keep: Keep,
}

/// What it says of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hints {
    True,
    /// That there was one, all the time.
    Always,
    Never,
}

/// What must stay as long as it is used.
type Keep = Arc<dyn Any + Send + Sync>;

#[derive(Clone, Debug)]
enum Kind {
    Memory(MemoryStore),
    Redis(RedisStore),
    Postgres(LeasedSql<sqlx::Postgres>),
    Sqlite(LeasedSql<sqlx::Sqlite>),
    MySql(LeasedSql<sqlx::MySql>),
}

impl AnyStore {
    pub(crate) async fn open(kind: &str, url: &str, space: &str) -> Self {
        let kind = match kind {
            "memory" => Kind::Memory(MemoryStore::new()),
            "redis" => {
                let store = RedisStore::builder().namespace(space);
                Kind::Redis(store.connect(url).await.unwrap())
            }
            "postgres" => Kind::Postgres(LeasedSql::new(postgres::pool(url, 4).await)),
            "sqlite" => {
                let options = SqliteConnectOptions::from_str(url).unwrap();
                let options = options.busy_timeout(Duration::from_secs(30));
                let pool = SqlitePoolOptions::new().max_connections(3);
                let pool = pool.connect_with(options).await.unwrap();
                let builder = LeasedSql::<sqlx::Sqlite>::builder().limit(PATIENCE);
                Kind::Sqlite(builder.build(pool))
            }
            "mysql" => Kind::MySql(LeasedSql::new(mariadb::pool(url, 4).await)),
            other => panic!("no store is called {other}"),
        };
        Self {
            kind,
            asked: Arc::default(),
            hints: Hints::True,
            late: None,
            _keep: Arc::new(()),
        }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    pub(crate) fn hints(mut self, hints: Hints) -> Self {
        self.hints = hints;
        self
    }

    /// Another handle that counts for itself.
    pub(crate) fn counting(&self) -> Self {
        Self {
            asked: Arc::default(),
            ..self.clone()
        }
    }
}

macro_rules! each {
    ($self:ident, $store:ident => $do:expr) => {
        match &$self.kind {
            Kind::Memory($store) => $do,
            Kind::Redis($store) => $do,
            Kind::Postgres($store) => $do,
            Kind::Sqlite($store) => $do,
            Kind::MySql($store) => $do,
        }
    };
}

impl Store for AnyStore {
    fn namespace(&self) -> &str {
        each!(self, store => store.namespace())
    }

    async fn reserve(&self, request: &Request<'_>) -> Result<Reserved, Error> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        each!(self, store => store.reserve(request).await)
    }

    async fn complete(
        &self,
        reservation: &Reservation,
        outcome: Bytes,
        retention: Retention,
    ) -> Result<Held, Error> {
        each!(self, store => store.complete(reservation, outcome, retention).await)
    }

    async fn release(&self, reservation: &Reservation) -> Result<Held, Error> {
        if let Some(first) = &self.late {
            if first.swap(false, Ordering::SeqCst) {
                return std::future::pending().await;
            }
            until("somebody else has it", async || {
                let stored = self.lookup(reservation.id).await.unwrap();
                stored.is_some_and(|stored| stored.record.fence != reservation.fence)
            })
            .await;
        }
        each!(self, store => store.release(reservation).await)
    }

    async fn renew(&self, reservation: &Reservation, lease: Duration) -> Result<Held, Error> {
        each!(self, store => store.renew(reservation, lease).await)
    }

    async fn lookup(&self, id: RecordId) -> Result<Option<Stored>, Error> {
        each!(self, store => store.lookup(id).await)
    }

    async fn forget(&self, id: RecordId) -> Result<bool, Error> {
        each!(self, store => store.forget(id).await)
    }

    async fn purge(&self, limit: usize) -> Result<usize, Error> {
        each!(self, store => store.purge(limit).await)
    }

    fn changed(&self, id: RecordId) -> impl Future<Output = ()> + Send {
        let hints = self.hints;
        let changed: std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> =
            each!(self, store => Box::pin(store.changed(id)));
        async move {
            match hints {
                Hints::True => changed.await,
                Hints::Always => {}
                Hints::Never => std::future::pending().await,
            }
        }
    }
}

/// A place where locks of one kind are.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) kind: &'static str,
    pub(crate) url: String,
    pub(crate) space: String,
    keep: Keep,
}

impl Place {
    pub(crate) async fn of(kind: &'static str) -> Self {
        let (url, keep): (String, Keep) = match kind {
            "memory" => (String::new(), Arc::new(())),
            "redis" => (Redis::url(), Arc::new(())),
            "postgres" => {
                let database = Postgres::database().await;
                let pool = database.pool(2).await;
                LeasedSql::new(pool).migrate().await.unwrap();
                (database.url().to_owned(), Arc::new(database))
            }
            "session" => {
                let database = Postgres::database().await;
                let pool = database.pool(2).await;
                AdvisoryLock::new(pool).migrate().await.unwrap();
                (database.url().to_owned(), Arc::new(database))
            }
            "sqlite" => {
                let file = Sqlite::file().await;
                LeasedSql::new(file.pool(2).await).migrate().await.unwrap();
                (file.url(), Arc::new(file))
            }
            "mysql" => {
                let database = MariaDb::database().await;
                let pool = database.pool(2).await;
                LeasedSql::new(pool).migrate().await.unwrap();
                (database.url().to_owned(), Arc::new(database))
            }
            other => panic!("no lock is called {other}"),
        };
        Self {
            kind,
            url,
            space: unique(),
            keep,
        }
    }

    pub(crate) async fn store(&self) -> AnyStore {
        let store = AnyStore::open(self.kind, &self.url, &self.space).await;
        AnyStore {
            _keep: Arc::clone(&self.keep),
            ..store
        }
    }

    pub(crate) async fn locks(&self, lease: Duration) -> Locks {
        if self.kind != "session" {
            return Locks::on(self.store().await, lease);
        }
        match Locks::open(self.kind, &self.url, &self.space, lease).await {
            Locks::Session(locks, _) => Locks::Session(locks, Arc::clone(&self.keep)),
            lease => lease,
        }
    }
}

/// Locks of any kind.
#[derive(Clone, Debug)]
pub(crate) enum Locks {
    Lease(LeaseLock<AnyStore>),
    Session(AdvisoryLock, Keep),
}

impl Locks {
    pub(crate) async fn open(kind: &str, url: &str, space: &str, lease: Duration) -> Self {
        if kind == "session" {
            let locks = AdvisoryLock::new(postgres::pool(url, 4).await).silence(lease);
            return Self::Session(locks.wait(PATIENCE), Arc::new(()));
        }
        Self::on(AnyStore::open(kind, url, space).await, lease)
    }

    pub(crate) fn on(store: AnyStore, lease: Duration) -> Self {
        Self::Lease(LeaseLock::new(store).lease(lease).wait(PATIENCE))
    }

    /// What a child is told: kind, URL, namespace, lease in milliseconds.
    pub(crate) async fn of(args: &Args) -> Self {
        let lease = Duration::from_millis(args.number(3));
        Self::open(args.get(0), args.get(1), args.get(2), lease).await
    }

    pub(crate) fn wait(self, budget: Duration) -> Self {
        match self {
            Self::Lease(locks) => Self::Lease(locks.wait(budget)),
            Self::Session(locks, keep) => Self::Session(locks.wait(budget), keep),
        }
    }

    pub(crate) fn on_drop(self, what: OnDrop) -> Self {
        match self {
            Self::Lease(locks) => Self::Lease(locks.on_drop(what)),
            Self::Session(_, _) => panic!("a session ends with its holder"),
        }
    }

    pub(crate) async fn acquire(&self, name: &str) -> Result<LockGuard, LockError> {
        match self {
            Self::Lease(locks) => locks.acquire(name).await,
            Self::Session(locks, _) => locks.acquire(name).await,
        }
    }

    pub(crate) async fn try_acquire(&self, name: &str) -> Result<LockGuard, LockError> {
        match self {
            Self::Lease(locks) => locks.try_acquire(name).await,
            Self::Session(locks, _) => locks.try_acquire(name).await,
        }
    }

    pub(crate) async fn holder(&self, name: &str) -> Option<Holder> {
        match self {
            Self::Lease(locks) => locks.holder(name).await.unwrap(),
            Self::Session(_, _) => panic!("a session has no record"),
        }
    }

    pub(crate) async fn lease_until(&self, name: &str) -> Option<Moment> {
        self.holder(name)
            .await
            .and_then(|holder| holder.lease_until)
    }
}

/// A name that no other test has.
pub(crate) fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    format!("lock_{}_{}_{count}", std::process::id(), since.as_nanos())
}

/// Waits until it is so.
pub(crate) async fn until<F: Future<Output = bool>>(
    what: &'static str,
    mut is_so: impl FnMut() -> F,
) {
    let begun = std::time::Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < PATIENCE, "still not: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
