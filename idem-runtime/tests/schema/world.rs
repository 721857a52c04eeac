//! An empty database of each kind, its command-line client, and all schemas in it.

use std::io::{ErrorKind, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use idem_macros::idempotent;
use idem_runtime::Error;
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::key::RecordId;
use idem_runtime::retention::Retention;
use idem_runtime::steps::{SagaDialect, SagaTable};
use idem_runtime::store::sql::lease::LeaseDialect;
use idem_runtime::store::sql::{Dialect as _, LeasedSql, Migration, Records};
use idem_runtime::store::{Held, Request, Reserved, Store as _, mysql, postgres, sqlite};
use idem_runtime::token::{StoredTokens, TokenDialect, TokenTable};
use idem_test_support::{MariaDb, MariaDbDatabase, Postgres, Sqlite, SqliteFile, TestDatabase};
use sqlx::{AssertSqlSafe, MySql, Pool, Transaction};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Idem(#[from] Error),
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
}

/// A database with everything that is kept in it.
pub(crate) trait Kind: LeaseDialect + SagaDialect + TokenDialect {
    fn record_texts(records: &Records) -> Vec<Migration>;
    fn migrate_records(pool: &Pool<Self>) -> impl Future<Output = Result<(), Error>> + Send;
    fn check_records(pool: &Pool<Self>) -> impl Future<Output = Result<(), Error>> + Send;
    /// Runs one or more statements.
    fn run(pool: &Pool<Self>, sql: &str) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
    fn number(pool: &Pool<Self>, sql: &str) -> impl Future<Output = i64> + Send;
    /// A call in the caller's transaction, which is committed.
    fn call(
        pool: &Pool<Self>,
        no: u32,
        answer: u32,
    ) -> impl Future<Output = Result<u32, Failure>> + Send;
}

macro_rules! kind {
    ($Db:ty, $module:ident, $scope:literal) => {
        impl Kind for $Db {
            fn record_texts(records: &Records) -> Vec<Migration> {
                $module::migrations(records)
            }

            async fn migrate_records(pool: &Pool<Self>) -> Result<(), Error> {
                $module::migrate(pool).await
            }

            async fn check_records(pool: &Pool<Self>) -> Result<(), Error> {
                $module::check(pool).await
            }

            async fn run(pool: &Pool<Self>, sql: &str) -> Result<(), sqlx::Error> {
                let run = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pool);
                run.await.map(drop)
            }

            async fn number(pool: &Pool<Self>, sql: &str) -> i64 {
                let asked = sqlx::query_scalar(AssertSqlSafe(sql.to_owned()));
                asked.persistent(false).fetch_one(pool).await.unwrap()
            }

            async fn call(pool: &Pool<Self>, no: u32, answer: u32) -> Result<u32, Failure> {
                #[idempotent(crate = ::idem_runtime, scope = $scope, key = "no:{no}", ttl = "1h",
                                                                    fingerprint(no), store = "tx")]
                async fn call(
                    tx: &mut Transaction<'_, $Db>,
                    no: u32,
                    answer: u32,
                ) -> Result<u32, Failure> {
                    Ok(answer)
                }
                let mut tx = Self::begin(pool).await?;
                let answer = call(&mut tx, no, answer).await?;
                tx.commit().await?;
                Ok(answer)
            }
        }
    };
}
kind!(sqlx::Postgres, postgres, "call.postgres");
kind!(MySql, mysql, "call.mysql");
kind!(sqlx::Sqlite, sqlite, "call.sqlite");

/// Every step of every schema.
pub(crate) fn texts<D: Kind>(pool: &Pool<D>) -> Vec<String> {
    let mut all = D::record_texts(&Records::default());
    all.extend(LeasedSql::new(pool.clone()).migrations());
    all.extend(TokenTable::default().migrations::<D>());
    all.extend(SagaTable::default().migrations::<D>());
    all.into_iter().map(|step| step.sql).collect()
}

pub(crate) async fn migrate_all<D: Kind>(pool: &Pool<D>) -> Result<(), Error> {
    D::migrate_records(pool).await?;
    LeasedSql::new(pool.clone()).migrate().await?;
    TokenTable::default().migrate(pool).await?;
    SagaTable::default().migrate(pool).await
}

/// What each check says, in the order of [`TABLES`].
pub(crate) async fn check_all<D: Kind>(pool: &Pool<D>) -> [Result<(), Error>; 4] {
    [
        D::check_records(pool).await,
        LeasedSql::new(pool.clone()).check().await,
        TokenTable::default().check(pool).await,
        SagaTable::default().check(pool).await,
    ]
}

pub(crate) const TABLES: [&str; 4] = ["idem_record", "idem_lease", "idem_token", "idem_saga"];

#[track_caller]
pub(crate) fn all_well(checks: [Result<(), Error>; 4]) {
    for (check, table) in checks.into_iter().zip(TABLES) {
        check.unwrap_or_else(|error| panic!("{table}: {error}"));
    }
}

/// One call of each kind: the first time it runs, then it is known.
pub(crate) async fn calls<D: Kind>(pool: &Pool<D>, no: u32) {
    assert_eq!(D::call(pool, no, no).await.unwrap(), no);
    assert_eq!(D::call(pool, no, no + 1).await.unwrap(), no);

    let store = LeasedSql::new(pool.clone());
    let id = RecordId::new("", "lease", &[], &no.to_string());
    let mut payload = [7; 17];
    payload[0] = 1;
    let request = Request::new(
        id,
        Fingerprint::from_bytes(payload),
        Duration::from_secs(30),
    );
    let Reserved::Granted(held) = store.reserve(&request).await.unwrap() else {
        panic!("a new key is granted");
    };
    let hour = Retention::new(Duration::from_secs(3600)).unwrap();
    let done = store.complete(&held, b"done".as_slice().into(), hour).await;
    assert_eq!(done.unwrap(), Held::Yes);

    let tokens = StoredTokens::new(TokenTable::default());
    let mut tx = D::begin(pool).await.unwrap();
    let hour = Duration::from_secs(3600);
    let token = tokens.issue(&mut tx, "who", "what", hour).await.unwrap();
    let consumed = tokens.consume(&mut tx, token.as_str(), "who", "what").await;
    consumed.unwrap();
    tx.commit().await.unwrap();

    let sagas = SagaTable::default();
    assert!(sagas.status(pool, "saga", "key").await.unwrap().is_none());
    assert_eq!(sagas.purge(pool, hour, 1).await.unwrap(), 0);
}

#[allow(clippy::large_enum_variant, reason = "one in each test")]
pub(crate) enum Keep {
    Postgres(TestDatabase),
    Sqlite(SqliteFile),
    MariaDb(MariaDbDatabase),
}

pub(crate) struct World<D: Kind> {
    pub(crate) pool: Pool<D>,
    pub(crate) keep: Keep,
}

pub(crate) async fn postgres() -> World<sqlx::Postgres> {
    let database = Postgres::database().await;
    World {
        pool: database.pool(8).await,
        keep: Keep::Postgres(database),
    }
}

pub(crate) async fn sqlite() -> World<sqlx::Sqlite> {
    let file = Sqlite::file().await;
    World {
        pool: file.pool(8).await,
        keep: Keep::Sqlite(file),
    }
}

pub(crate) async fn mariadb() -> World<MySql> {
    let database = MariaDb::database().await;
    World {
        pool: database.pool(8).await,
        keep: Keep::MariaDb(database),
    }
}

impl<D: Kind> World<D> {
    /// Gives a text to the database's own client, as one does by hand.
    pub(crate) fn client(&self, text: &str) {
        let mut client = match &self.keep {
            Keep::Postgres(database) => {
                let mut psql = Command::new("psql");
                psql.args(["-q", "-X", "-v", "ON_ERROR_STOP=1", "-d", database.url()]);
                psql
            }
            Keep::MariaDb(database) => {
                let options = database.options();
                let mut client = Command::new("mariadb");
                client.args(["--no-defaults", "--protocol=tcp"]);
                client.arg(format!("--host={}", options.get_host()));
                client.arg(format!("--port={}", options.get_port()));
                client.arg(format!("--user={}", options.get_username()));
                client.arg(database.name());
                client
            }
            Keep::Sqlite(file) => {
                let mut sqlite = Command::new("sqlite3");
                sqlite.arg("-bail").arg(file.path());
                sqlite
            }
        };
        let name = client.get_program().to_owned();
        let client = client.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut client = match client {
            Ok(client) => client,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                panic!("this test needs the client {}: install it", name.display())
            }
            Err(error) => panic!("{}: {error}", name.display()),
        };
        let mut input = client.stdin.take().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        drop(input);
        let said = client.wait_with_output().unwrap();
        let complaints = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{complaints}\n{text}");
    }
}

/// The same tests on each database.
macro_rules! on_each {
    ($($test:ident)*) => {
        $crate::world::on_each!(@ on_postgres, postgres: $($test)*);
        $crate::world::on_each!(@ on_sqlite, sqlite: $($test)*);
        $crate::world::on_each!(@ on_mariadb, mariadb: $($test)*);
    };
    (@ $module:ident, $make:ident: $($test:ident)*) => {
        mod $module { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test($crate::world::$make().await).await;
            }
        )* }
    };
}
pub(crate) use on_each;
