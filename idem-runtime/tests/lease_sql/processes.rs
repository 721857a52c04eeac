//! Processes that are killed, stopped, and many at once.

use std::time::{Duration, Instant};

use idem_runtime::ErrorKind;
use idem_runtime::store::sql::LeasedSql;
use idem_runtime::store::sql::lease::LeaseDialect;
use idem_runtime::store::{Held, Store};
use idem_test_support::child::{Args, say};
use idem_test_support::{mariadb, postgres};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{MySql, Pool, Postgres, Sqlite};

use crate::support::{self, Failure, REJECTING, WAITING, call, granted, hour, refused, request};

idem_test_support::child_roles!(dies_in_body, is_stopped, is_stopped_in_body, caller);

/// What a child is told about the database: which, and where.
async fn open(args: &Args) -> Opened {
    match args.get(0) {
        "postgres" => Opened::Postgres(postgres::pool(args.get(1), 4).await),
        "mariadb" => Opened::MariaDb(mariadb::pool(args.get(1), 4).await),
        _ => {
            let options: SqliteConnectOptions = args.get(1).parse().unwrap();
            let options = options.busy_timeout(Duration::from_secs(10));
            Opened::Sqlite(
                SqlitePoolOptions::new()
                    .connect_with(options)
                    .await
                    .unwrap(),
            )
        }
    }
}

enum Opened {
    Postgres(Pool<Postgres>),
    MariaDb(Pool<MySql>),
    Sqlite(Pool<Sqlite>),
}

macro_rules! with_store {
    ($opened:expr, $store:ident => $do:expr) => {
        match $opened {
            Opened::Postgres(pool) => {
                let $store = LeasedSql::new(pool);
                $do
            }
            Opened::MariaDb(pool) => {
                let $store = LeasedSql::new(pool);
                $do
            }
            Opened::Sqlite(pool) => {
                let $store = LeasedSql::new(pool);
                $do
            }
        }
    };
}

async fn dies_in_body(args: Args) {
    with_store!(open(&args).await, store => {
        let body = || async {
            say("in the body");
            std::future::pending().await
        };
        call(&store, &WAITING, "7", body).await.unwrap();
    });
}

/// Reserves by hand and asks for every step once it may go on.
async fn is_stopped(args: Args) {
    with_store!(open(&args).await, store => {
        let asked = request("stopped", Duration::from_millis(500));
        let held = granted(store.reserve(&asked).await.unwrap());
        say("reserved");
        args.hear().await;
        let answers = [
            store.renew(&held, Duration::from_secs(60)).await.unwrap(),
            store.complete(&held, b"late".as_slice().into(), hour()).await.unwrap(),
            store.release(&held).await.unwrap(),
        ];
        say(&format!("{answers:?}"));
    });
}

async fn is_stopped_in_body(args: Args) {
    with_store!(open(&args).await, store => {
        let body = || async {
            say("in the body");
            args.hear().await;
            Ok(1)
        };
        say(&format!("{:?}", refused(call(&store, &WAITING, "7", body).await)));
    });
}

async fn kill9_in_the_body<D: LeaseDialect>(kind: &str, url: String, store: LeasedSql<D>) {
    let mut child = child("dies_in_body").arg(kind).arg(url).spawn();
    child.wait_for("in the body").await;
    // A lease was renewed at most a third of it ago, and lasts two thirds of it yet.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    child.kill9();
    let killed = Instant::now();
    let early = call(&store, &REJECTING, "7", || async { Ok(2) }).await;
    assert_eq!(refused(early), ErrorKind::InProgress);
    let answer = call(&store, &WAITING, "7", || async { Ok(2) }).await;
    let waited = killed.elapsed();
    assert_eq!(answer.unwrap(), 2);
    assert!(
        waited >= Duration::from_millis(500),
        "taken over after {waited:?}"
    );
    assert!(
        waited <= Duration::from_secs(5),
        "taken over after {waited:?}"
    );
}

#[tokio::test]
async fn ip_06_a_killed_process_frees_its_key_with_its_lease() {
    let (database, pool) = support::postgres().await;
    kill9_in_the_body("postgres", database.url().to_owned(), LeasedSql::new(pool)).await;
    let (database, pool) = support::mariadb().await;
    kill9_in_the_body("mariadb", database.url().to_owned(), LeasedSql::new(pool)).await;
    let (file, pool) = support::sqlite().await;
    kill9_in_the_body("sqlite", file.url(), LeasedSql::new(pool)).await;
}

async fn stopped<D: LeaseDialect>(kind: &str, url: String, store: LeasedSql<D>) {
    let mut child = child("is_stopped").arg(kind).arg(url).spawn();
    child.wait_for("reserved").await;
    child.sigstop();
    tokio::time::sleep(Duration::from_millis(600)).await;
    let new = granted(
        store
            .reserve(&request("stopped", support::LEASE))
            .await
            .unwrap(),
    );
    child.sigcont();
    child.tell("go on");
    assert_eq!(child.next_message().await, "[No, No, No]");
    let done = store.complete(&new, b"new".as_slice().into(), hour()).await;
    assert_eq!(done.unwrap(), Held::Yes);
}

/// LK-01.
#[tokio::test]
async fn lk_01_an_owner_that_was_stopped_changes_nothing() {
    let (database, pool) = support::postgres().await;
    stopped("postgres", database.url().to_owned(), LeasedSql::new(pool)).await;
    let (database, pool) = support::mariadb().await;
    stopped("mariadb", database.url().to_owned(), LeasedSql::new(pool)).await;
    let (file, pool) = support::sqlite().await;
    stopped("sqlite", file.url(), LeasedSql::new(pool)).await;
}

async fn stopped_in_body<D: LeaseDialect>(kind: &str, url: String, store: LeasedSql<D>) {
    let mut child = child("is_stopped_in_body").arg(kind).arg(url).spawn();
    child.wait_for("in the body").await;
    child.sigstop();
    let answer = call(&store, &WAITING, "7", || async { Ok(2) }).await;
    assert_eq!(answer.unwrap(), 2);
    child.sigcont();
    child.tell("go on");
    assert_eq!(child.next_message().await, "LostOwnership");
    let answer = call(&store, &WAITING, "7", || async { Ok(3) }).await;
    assert_eq!(answer.unwrap(), 2);
}

#[tokio::test]
async fn lk_01_a_body_that_was_stopped_loses_its_ownership() {
    let (database, pool) = support::postgres().await;
    stopped_in_body("postgres", database.url().to_owned(), LeasedSql::new(pool)).await;
    let (database, pool) = support::mariadb().await;
    stopped_in_body("mariadb", database.url().to_owned(), LeasedSql::new(pool)).await;
}

/// Two hundred equal calls together; each run leaves a mark outside the store.
async fn caller(args: Args) {
    let opened = open(&args).await;
    let effects: std::path::PathBuf = args.get(2).into();
    args.line_up().await;
    with_store!(opened, store => {
        let calls = (0..200).map(|_| {
            let (store, effects) = (store.clone(), effects.clone());
            tokio::spawn(async move {
                let body = || async {
                    std::fs::write(effects.join(std::process::id().to_string()), "").unwrap();
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    Ok::<u64, Failure>(u64::from(std::process::id()))
                };
                call(&store, &WAITING, "same", body).await
            })
        });
        let calls: Vec<_> = calls.collect();
        for call in calls {
            say(&call.await.unwrap().unwrap().to_string());
        }
    });
}

async fn five_processes(kind: &str, url: String) {
    let effects = std::env::temp_dir().join(format!("idem-effects-{kind}-{}", std::process::id()));
    std::fs::create_dir_all(&effects).unwrap();
    let said = child("caller")
        .arg(kind)
        .arg(url)
        .arg(effects.display())
        .run_many(5)
        .await;
    let runs = std::fs::read_dir(&effects).unwrap().count();
    std::fs::remove_dir_all(&effects).unwrap();
    assert_eq!(runs, 1, "{kind}");
    let answers: Vec<&String> = said.iter().flatten().collect();
    assert_eq!(answers.len(), 1000);
    assert!(answers.iter().all(|answer| *answer == answers[0]));
}

/// F5.
#[tokio::test]
async fn f5_five_processes_with_two_hundred_equal_calls_each() {
    let (database, _pool) = support::postgres().await;
    five_processes("postgres", database.url().to_owned()).await;
    let (database, _pool) = support::mariadb().await;
    five_processes("mariadb", database.url().to_owned()).await;
    let (file, _pool) = support::sqlite().await;
    five_processes("sqlite", file.url()).await;
}
