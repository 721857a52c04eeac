//! Two databases under one name, and the functions that most cases call.

use std::{
    fmt::Debug,
    future::Future,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use idem::{ErrorKind, idempotent, store::sql::Dialect};
use idem_test_support::{Postgres, Sqlite, SqliteFile, TestDatabase, postgres};
use serde::{Deserialize, Serialize};
use sqlx::{
    AssertSqlSafe, Database, Pool, Transaction,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions},
};
use tokio::sync::watch;

/// Runs each generic case on both databases.
macro_rules! on_both {
    ($($case:ident),+ $(,)?) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case::<crate::fixture::Pg>().await;
            })+
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case::<crate::fixture::Lite>().await;
            })+
        }
    };
}

pub(crate) type Tx<'c, B> = Transaction<'c, <B as Backend>::Db>;
pub(crate) type Connection<B> = <<B as Backend>::Db as Database>::Connection;

/// A database server or file of the test's own.
pub(crate) trait Backend: Debug + Sized + Send + Sync + 'static {
    type Db: Dialect;
    /// How a service begins a transaction that writes.
    const BEGIN: &'static str;
    const NAME: &'static str;

    fn start() -> impl Future<Output = Self> + Send;
    fn url(&self) -> String;
    fn open(url: &str, max: u32) -> impl Future<Output = Pool<Self::Db>> + Send;
    fn migrate(pool: &Pool<Self::Db>) -> impl Future<Output = Result<(), idem::Error>> + Send;
    fn check(pool: &Pool<Self::Db>) -> impl Future<Output = Result<(), idem::Error>> + Send;
    fn execute(
        conn: &mut Connection<Self>,
        sql: impl Into<String> + Send,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;
    fn number(
        conn: &mut Connection<Self>,
        sql: impl Into<String> + Send,
    ) -> impl Future<Output = Result<i64, sqlx::Error>> + Send;
    /// Makes every recording of an outcome fail, or no longer.
    fn fail_recording(conn: &mut Connection<Self>, fail: bool) -> impl Future<Output = ()> + Send;
    /// Whether a commit was refused because of an unfinished reservation.
    fn is_half_done(error: &sqlx::Error) -> bool;
}

#[derive(Debug)]
pub(crate) struct Pg(pub(crate) TestDatabase);

#[derive(Debug)]
pub(crate) struct Lite(pub(crate) SqliteFile);

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error()?.code().map(Into::into)
}

macro_rules! statements {
    () => {
        async fn execute(
            conn: &mut Connection<Self>,
            sql: impl Into<String> + Send,
        ) -> Result<u64, sqlx::Error> {
            let done = sqlx::query(AssertSqlSafe(sql.into())).persistent(false);
            done.execute(conn).await.map(|done| done.rows_affected())
        }

        async fn number(
            conn: &mut Connection<Self>,
            sql: impl Into<String> + Send,
        ) -> Result<i64, sqlx::Error> {
            let asked = sqlx::query_scalar(AssertSqlSafe(sql.into())).persistent(false);
            asked.fetch_one(conn).await
        }
    };
}

impl Backend for Pg {
    type Db = sqlx::Postgres;
    const BEGIN: &'static str = "BEGIN";
    const NAME: &'static str = "postgres";

    async fn start() -> Self {
        Self(Postgres::database().await)
    }

    fn url(&self) -> String {
        self.0.url().to_owned()
    }

    async fn open(url: &str, max: u32) -> Pool<Self::Db> {
        postgres::pool(url, max).await
    }

    async fn migrate(pool: &Pool<Self::Db>) -> Result<(), idem::Error> {
        idem::store::postgres::migrate(pool).await
    }

    async fn check(pool: &Pool<Self::Db>) -> Result<(), idem::Error> {
        idem::store::postgres::check(pool).await
    }

    statements!();

    async fn fail_recording(conn: &mut Connection<Self>, fail: bool) {
        let sql = if fail {
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'nothing is recorded today' USING ERRCODE = '53100'; END $$; \
             CREATE TRIGGER refuse BEFORE UPDATE OF outcome ON idem_record \
             FOR EACH ROW EXECUTE FUNCTION refuse()"
        } else {
            "DROP TRIGGER refuse ON idem_record"
        };
        sqlx::raw_sql(sql).execute(conn).await.unwrap();
    }

    fn is_half_done(error: &sqlx::Error) -> bool {
        code(error).is_some_and(|code| code == "23503")
    }
}

impl Backend for Lite {
    type Db = sqlx::Sqlite;
    const BEGIN: &'static str = "BEGIN IMMEDIATE";
    const NAME: &'static str = "sqlite";

    async fn start() -> Self {
        Self(Sqlite::file().await)
    }

    fn url(&self) -> String {
        self.0.url()
    }

    async fn open(url: &str, max: u32) -> Pool<Self::Db> {
        let options: SqliteConnectOptions = url.parse().unwrap();
        SqlitePoolOptions::new()
            .max_connections(max)
            .acquire_timeout(Duration::from_secs(30))
            .connect_with(
                options
                    .journal_mode(SqliteJournalMode::Wal)
                    .busy_timeout(Duration::from_secs(30)),
            )
            .await
            .unwrap()
    }

    async fn migrate(pool: &Pool<Self::Db>) -> Result<(), idem::Error> {
        idem::store::sqlite::migrate(pool).await
    }

    async fn check(pool: &Pool<Self::Db>) -> Result<(), idem::Error> {
        idem::store::sqlite::check(pool).await
    }

    statements!();

    async fn fail_recording(conn: &mut Connection<Self>, fail: bool) {
        // Another connection of the pool may have made or removed it: to CREATE, this one would still
        // believe what it has read of the schema; DROP reads it anew.
        let sql = if fail {
            "DROP TRIGGER IF EXISTS refuse; \
             CREATE TRIGGER refuse BEFORE UPDATE OF outcome ON idem_record \
             BEGIN SELECT RAISE(ABORT, 'nothing is recorded today'); END"
        } else {
            "DROP TRIGGER refuse"
        };
        sqlx::raw_sql(sql).execute(conn).await.unwrap();
    }

    fn is_half_done(error: &sqlx::Error) -> bool {
        code(error).is_some_and(|code| code == "787")
    }
}

/// A database with the record table and one for effects, and a pool.
#[derive(Debug)]
pub(crate) struct World<B: Backend> {
    pub(crate) pool: Pool<B::Db>,
    pub(crate) backend: B,
}

impl<B: Backend> World<B> {
    pub(crate) async fn new(max: u32) -> Self {
        let backend = B::start().await;
        let pool = B::open(&backend.url(), max).await;
        B::migrate(&pool).await.unwrap();
        B::check(&pool).await.unwrap();
        let world = Self { pool, backend };
        world.execute("CREATE TABLE effect (name text)").await;
        world
    }

    pub(crate) async fn begin(&self) -> Tx<'static, B> {
        begin::<B>(&self.pool).await
    }

    pub(crate) async fn execute(&self, sql: impl Into<String> + Send) {
        let mut conn = self.pool.acquire().await.unwrap();
        B::execute(&mut conn, sql).await.unwrap();
    }

    pub(crate) async fn number(&self, sql: impl Into<String> + Send) -> i64 {
        let mut conn = self.pool.acquire().await.unwrap();
        B::number(&mut conn, sql).await.unwrap()
    }

    /// Committed effects of this name.
    pub(crate) async fn effects(&self, name: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM effect WHERE name = '{name}'");
        self.number(sql).await
    }

    /// Committed records, and among them those without outcome.
    pub(crate) async fn records(&self) -> (i64, i64) {
        let all = "SELECT count(*) FROM idem_record";
        let open = "SELECT count(*) FROM idem_record WHERE outcome IS NULL";
        (self.number(all).await, self.number(open).await)
    }

    /// One call of [`pay`] in a transaction of its own, committed when it succeeded.
    pub(crate) async fn pay(&self, id: &str, probe: &Probe) -> Result<Receipt, Failure> {
        let mut tx = self.begin().await;
        let answer = pay::<B>(&mut tx, id, 100, probe).await;
        match answer {
            Ok(receipt) => tx.commit().await.map(|()| receipt).map_err(Failure::from),
            Err(failure) => {
                tx.rollback().await.ok();
                Err(failure)
            }
        }
    }
}

pub(crate) async fn begin<B: Backend>(pool: &Pool<B::Db>) -> Tx<'static, B> {
    pool.begin_with(B::BEGIN).await.unwrap()
}

/// The statement that a body's effect consists of.
pub(crate) fn effect(name: &str) -> String {
    format!("INSERT INTO effect (name) VALUES ('{name}')")
}

/// Polls until the condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    for _ in 0..6000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what} does not come");
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Idem(#[from] idem::Error),
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    #[error("refused: {0}")]
    Business(String),
}

impl Failure {
    /// The framework's kind of error, if it is one.
    pub(crate) fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Idem(error) => Some(error.kind()),
            Self::Sql(_) | Self::Business(_) => None,
        }
    }

    pub(crate) fn idem(self) -> idem::Error {
        match self {
            Self::Idem(error) => error,
            other => panic!("not an error of the framework: {other:?}"),
        }
    }

    /// The database's code, if it is the database's error.
    pub(crate) fn code(&self) -> Option<String> {
        let Self::Sql(error) = self else { return None };
        code(error)
    }
}

/// What kind of error the framework gave.
#[track_caller]
pub(crate) fn kind<T: Debug>(answer: Result<T, Failure>) -> ErrorKind {
    answer.unwrap_err().idem().kind()
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) id: String,
    /// Different for every run of a body, in all processes.
    pub(crate) run: String,
}

impl Receipt {
    pub(crate) fn of(id: &str) -> Self {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        Self {
            id: id.to_owned(),
            run: format!("{}-{run}", std::process::id()),
        }
    }
}

/// Counts the runs of bodies, and may keep them from going on.
#[derive(Debug)]
pub(crate) struct Probe {
    runs: watch::Sender<usize>,
    open: bool,
}

impl Probe {
    pub(crate) fn new() -> Self {
        let runs = watch::Sender::new(0);
        Self { runs, open: true }
    }

    /// Bodies do not get beyond their beginning.
    pub(crate) fn gated() -> Self {
        Self {
            open: false,
            ..Self::new()
        }
    }

    pub(crate) fn runs(&self) -> usize {
        *self.runs.borrow()
    }

    /// Waits until so many bodies have begun.
    pub(crate) async fn entered(&self, runs: usize) {
        let mut seen = self.runs.subscribe();
        let begun = seen.wait_for(|&seen| seen >= runs);
        let begun = tokio::time::timeout(Duration::from_secs(30), begun).await;
        begun.expect("the body does not begin").unwrap();
    }

    /// What a body does first.
    pub(crate) async fn enter(&self) {
        self.runs.send_modify(|runs| *runs += 1);
        if !self.open {
            std::future::pending::<()>().await;
        }
    }
}

async fn one_effect<B: Backend>(
    tx: &mut Tx<'_, B>,
    id: &str,
    probe: &Probe,
) -> Result<Receipt, Failure> {
    probe.enter().await;
    B::execute(tx, effect(id)).await?;
    Ok(Receipt::of(id))
}

/// One effect; a duplicate of a running call waits.
#[idempotent(
    key = "pay:{id}",
    ttl = "1h",
    store = "tx",
    scope = "test.pay", shared_scope,
    companion = pay_call
)]
pub(crate) async fn pay<B: Backend>(
    tx: &mut Tx<'_, B>,
    id: &str,
    cents: i64,
    probe: &Probe,
) -> Result<Receipt, Failure> {
    one_effect::<B>(tx, id, probe).await
}

/// The same operation; a duplicate of a running call is refused.
#[idempotent(
    key = "pay:{id}",
    ttl = "1h",
    store = "tx",
    scope = "test.pay",
    shared_scope,
    reject
)]
pub(crate) async fn pay_now<B: Backend>(
    tx: &mut Tx<'_, B>,
    id: &str,
    cents: i64,
    probe: &Probe,
) -> Result<Receipt, Failure> {
    one_effect::<B>(tx, id, probe).await
}
