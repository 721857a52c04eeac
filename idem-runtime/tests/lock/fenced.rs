//! Writes under a fencing number, on each database.

use idem_runtime::lock::{FenceError, FencedUpdate, Written};
use idem_runtime::protocol::Fence;
use idem_runtime::version::VersionDialect;
use idem_test_support::{MariaDb, Postgres, Sqlite};
use sqlx::{Connection as _, MySqlConnection};

use crate::late::DOCUMENT;

fn update<D: VersionDialect>() -> FencedUpdate<D, 1> {
    FencedUpdate::new("document", ["body"]).unwrap()
}

fn fence(number: u64) -> Fence {
    Fence::new(number)
}

fn is_fenced(written: Written, by: u64) -> bool {
    matches!(written, Written::Fenced { current, .. } if current == fence(by))
}

/// `SELECT body, fence` of the document.
macro_rules! row {
    ($on:expr) => {
        sqlx::query_as::<_, (String, Option<i64>)>("SELECT body, fence FROM document WHERE id = 1")
            .fetch_one($on)
            .await
            .unwrap()
    };
}

macro_rules! a_number_only_grows {
    ($pool:ident, $db:ty) => {
        let body = update::<$db>();
        let mut conn = $pool.acquire().await.unwrap();
        // The first number, the same holder again, the same values again, a later holder.
        for (number, text) in [(5, "a"), (5, "b"), (5, "b"), (7, "b"), (7, "c")] {
            let done = body.apply(&mut conn, fence(number), 1, (text,)).await;
            assert_eq!(done.unwrap(), Written::Done, "{number} {text}");
            assert_eq!(row!(&mut *conn), (text.to_owned(), Some(number as i64)));
        }
        for late in [0, 5, 6] {
            let late = body
                .apply(&mut conn, fence(late), 1, ("late",))
                .await
                .unwrap();
            assert!(is_fenced(late, 7), "{late:?}");
            assert!(matches!(late.done(), Err(FenceError::Fenced { .. })));
        }
        assert_eq!(row!(&mut *conn), ("c".to_owned(), Some(7)));
        let gone = body.apply(&mut conn, fence(9), 2, ("x",)).await.unwrap();
        assert_eq!(gone, Written::NotFound);
        let most = u64::try_from(i64::MAX).unwrap();
        let done = body.apply(&mut conn, fence(most), 1, ("d",)).await.unwrap();
        assert_eq!(done, Written::Done);
        let beyond = body.apply(&mut conn, fence(most + 1), 1, ("e",)).await;
        assert!(matches!(beyond, Err(FenceError::NotSent(_))), "{beyond:?}");
        assert_eq!(row!(&mut *conn), ("d".to_owned(), Some(i64::MAX)));
    };
}

/// A row that only carries the number stands for all that its transaction writes.
macro_rules! a_row_stands_for_a_transaction {
    ($pool:ident, $db:ty) => {
        let number = FencedUpdate::<$db, 0>::new("document", [""; 0]).unwrap();
        for (given, holds) in [(3, true), (2, false), (4, true)] {
            let mut tx = $pool.begin().await.unwrap();
            let log = sqlx::AssertSqlSafe(format!("INSERT INTO log VALUES ({given})"));
            sqlx::query(log).execute(&mut *tx).await.unwrap();
            let written = number.apply(&mut tx, fence(given), 1, ()).await.unwrap();
            match written.done() {
                Ok(()) => tx.commit().await.unwrap(),
                Err(_) => tx.rollback().await.unwrap(),
            }
            let logged = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM log WHERE n = {given}"));
            let logged: i64 = sqlx::query_scalar(logged).fetch_one(&$pool).await.unwrap();
            assert_eq!(logged == 1, holds, "{given}");
        }
    };
}

/// One object, one connection; `user` is a word of the language.
macro_rules! values_ids_and_names_are_taken_as_they_are {
    ($pool:ident, $db:ty) => {
        let sql = "CREATE TABLE weight (id BIGINT PRIMARY KEY, kilos DOUBLE PRECISION, fence BIGINT);\
                   INSERT INTO weight VALUES (1, 0, NULL)";
        sqlx::raw_sql(sql).execute(&$pool).await.unwrap();
        let update = FencedUpdate::<$db, 1>::new("weight", ["kilos"]).unwrap();
        let mut conn = $pool.acquire().await.unwrap();
        update.check(&mut conn).await.unwrap();
        for number in [1, 2] {
            let whole = update.apply(&mut conn, fence(number), 1_i64, (7_i64,)).await;
            assert_eq!(whole.unwrap(), Written::Done);
            let part = update.apply(&mut conn, fence(number), 1_i32, (1.5_f64,)).await;
            assert_eq!(part.unwrap(), Written::Done);
            let kilos: f64 = sqlx::query_scalar("SELECT kilos FROM weight")
                .fetch_one(&mut *conn)
                .await
                .unwrap();
            assert_eq!(kilos, 1.5);
        }
        let update = FencedUpdate::<$db, 1>::new("order", ["group"]).unwrap();
        let update = update.id_column("user").unwrap();
        let missing = update.apply(&mut conn, fence(1), 1_i64, (1_i64,)).await;
        let missing = missing.unwrap_err();
        assert!(missing.to_string().contains("`order`"), "{missing}");
        assert_eq!(missing.retry(), idem_runtime::Retry::Never);
        assert_eq!(missing.effect(), idem_runtime::Effect::None);
    };
}

macro_rules! a_number_in_another_type_is_refused {
    ($pool:ident, $db:ty) => {
        let sql = "CREATE TABLE weight (id BIGINT PRIMARY KEY, fence REAL);\
                   INSERT INTO weight VALUES (1, NULL)";
        sqlx::raw_sql(sql).execute(&$pool).await.unwrap();
        let update = FencedUpdate::<$db, 0>::new("weight", [""; 0]).unwrap();
        let mut conn = $pool.acquire().await.unwrap();
        for error in [
            update.check(&mut conn).await.unwrap_err(),
            update
                .apply(&mut conn, fence(1), 1_i64, ())
                .await
                .unwrap_err(),
        ] {
            assert!(error.to_string().contains("`fence` of `weight`"), "{error}");
        }
    };
}

/// The later holder commits while the earlier one's statement waits for it, and the other way round.
macro_rules! whoever_is_later_decides {
    ($pool:ident, $db:ty) => {
        let body = update::<$db>();
        for round in 0..10_u64 {
            let (low, high) = (fence(10 * round + 1), fence(10 * round + 2));
            let mut tasks = Vec::new();
            for (number, text) in [(low, "low"), (high, "high"), (low, "low"), (high, "high")] {
                let (body, pool) = (body.clone(), $pool.clone());
                tasks.push(tokio::spawn(async move {
                    let mut conn = pool.acquire().await.unwrap();
                    body.apply(&mut conn, number, 1, (text,)).await.unwrap()
                }));
            }
            for task in tasks {
                let written = task.await.unwrap();
                assert!(written == Written::Done || is_fenced(written, high.get()));
            }
            let last = (String::from("high"), i64::try_from(high.get()).ok());
            assert_eq!(row!(&$pool), last);
        }
    };
}

macro_rules! on_each {
    ($($test:ident)*) => {
        mod on_postgres { $(
            #[tokio::test]
            async fn $test() {
                let database = super::Postgres::database().await;
                let pool = database.pool(8).await;
                sqlx::raw_sql(super::TABLES).execute(&pool).await.unwrap();
                use super::*;
                $test!(pool, sqlx::Postgres);
            }
        )* }
        mod on_sqlite { $(
            #[tokio::test]
            async fn $test() {
                let file = super::Sqlite::file().await;
                let pool = file.pool(8).await;
                sqlx::raw_sql(super::TABLES).execute(&pool).await.unwrap();
                use super::*;
                $test!(pool, sqlx::Sqlite);
            }
        )* }
        mod on_mysql { $(
            #[tokio::test]
            async fn $test() {
                let database = super::MariaDb::database().await;
                let pool = database.pool(8).await;
                sqlx::raw_sql(super::TABLES).execute(&pool).await.unwrap();
                use super::*;
                $test!(pool, sqlx::MySql);
            }
        )* }
    };
}

const TABLES: &str = "CREATE TABLE document (id BIGINT PRIMARY KEY, body VARCHAR(20) NOT NULL, \
     fence BIGINT); INSERT INTO document VALUES (1, 'old', NULL); CREATE TABLE log (n BIGINT);";

on_each! {
    a_number_only_grows
    a_row_stands_for_a_transaction
    whoever_is_later_decides
    values_ids_and_names_are_taken_as_they_are
    a_number_in_another_type_is_refused
}

/// Also for a connection that counts the rows that it changed.
#[tokio::test]
async fn it_does_not_matter_what_a_mysql_connection_counts() {
    let database = MariaDb::database().await;
    database.execute(DOCUMENT).await;
    let proxy = database.proxy();
    proxy.count_changed_rows();
    let through = database.options_through(&proxy);
    let mut conn = MySqlConnection::connect_with(&through).await.unwrap();
    let same = sqlx::query("UPDATE document SET body = body");
    assert_eq!(same.execute(&mut conn).await.unwrap().rows_affected(), 0);
    let body = update::<sqlx::MySql>();
    for _ in 0..2 {
        let done = body.apply(&mut conn, fence(5), 1, ("a",)).await.unwrap();
        assert_eq!(done, Written::Done);
    }
    let late = body.apply(&mut conn, fence(4), 1, ("a",)).await.unwrap();
    assert!(is_fenced(late, 5), "{late:?}");
    let gone = body.apply(&mut conn, fence(5), 9, ("a",)).await.unwrap();
    assert_eq!(gone, Written::NotFound);
}

/// Without strict mode a number beyond its column is cut, and a later holder's number with it: an
/// earlier holder would pass.
#[tokio::test]
async fn a_number_that_does_not_fit_is_not_cut() {
    let database = MariaDb::database().await;
    database
        .execute("CREATE TABLE document (id BIGINT PRIMARY KEY, body VARCHAR(20), fence INT)")
        .await;
    database
        .execute("INSERT INTO document VALUES (1, 'old', NULL)")
        .await;
    let pool = database.pool(1).await;
    let mut conn = pool.acquire().await.unwrap();
    let set = sqlx::raw_sql("SET SESSION sql_mode = ''");
    set.execute(&mut *conn).await.unwrap();
    for number in [3_000_000_002, 3_000_000_001] {
        let error = update::<sqlx::MySql>()
            .apply(&mut conn, fence(number), 1_i64, ("new",))
            .await
            .unwrap_err();
        assert_eq!(error.retry(), idem_runtime::Retry::Never, "{error}");
    }
}

#[tokio::test]
async fn what_the_database_keeps_as_it_is_was_not_written() {
    let database = Postgres::database().await;
    let pool = database.pool(2).await;
    sqlx::raw_sql(DOCUMENT).execute(&pool).await.unwrap();
    database
        .execute("CREATE RULE keep AS ON UPDATE TO document DO INSTEAD NOTHING")
        .await;
    let mut conn = pool.acquire().await.unwrap();
    let kept = update::<sqlx::Postgres>()
        .apply(&mut conn, fence(1), 1_i64, ("x",))
        .await;
    assert!(matches!(kept, Err(FenceError::Kept)), "{kept:?}");
    let twice = "CREATE TABLE twice (id BIGINT, fence BIGINT); INSERT INTO twice VALUES (1), (1)";
    database.execute(twice).await;
    let twice = FencedUpdate::<sqlx::Postgres, 0>::new("twice", [""; 0]).unwrap();
    let written = twice.apply(&mut conn, fence(1), 1_i64, ()).await;
    assert!(
        matches!(written, Err(FenceError::Ambiguous { rows: 2 })),
        "{written:?}"
    );
}

/// In a snapshot a late holder is told by the database, not let in.
#[tokio::test]
async fn a_late_holder_in_an_old_snapshot_is_refused() {
    let database = Postgres::database().await;
    let pool = database.pool(4).await;
    sqlx::raw_sql(DOCUMENT).execute(&pool).await.unwrap();
    let body = update::<sqlx::Postgres>();
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let mut tx = pool.begin().await.unwrap();
        let level = format!("SET TRANSACTION ISOLATION LEVEL {level}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(level))
            .execute(&mut *tx)
            .await
            .unwrap();
        let _ = row!(&mut *tx);
        let mut conn = pool.acquire().await.unwrap();
        let done = body
            .apply(&mut conn, fence(9), 1_i64, ("later",))
            .await
            .unwrap();
        assert_eq!(done, Written::Done);
        let late = body.apply(&mut tx, fence(8), 1_i64, ("late",)).await;
        let error = late.expect_err("the snapshot is old");
        assert!(error.calls_for_retry(), "{error}");
        tx.rollback().await.unwrap();
        let reset = sqlx::raw_sql("UPDATE document SET fence = 1");
        reset.execute(&pool).await.unwrap();
    }
}

#[test]
fn names_are_checked_and_the_statement_carries_its_condition() {
    let update = FencedUpdate::<sqlx::Postgres, _>::new("shop.account", ["balance", "note"]);
    let update = update
        .unwrap()
        .id_column("no")
        .unwrap()
        .fence_column("held")
        .unwrap();
    assert_eq!(
        update.statement(),
        "UPDATE \"shop\".\"account\" SET \"balance\" = $1, \"note\" = $2, \"held\" = $3 \
         WHERE \"no\" = $4 AND (\"held\" IS NULL OR \"held\" <= $5)"
    );
    for bad in ["a b", "a;b", "fence", "ID", ""] {
        assert!(
            FencedUpdate::<sqlx::Postgres, 1>::new("account", [bad]).is_err(),
            "{bad}"
        );
    }
    assert!(FencedUpdate::<sqlx::Postgres, 1>::new("a b", ["x"]).is_err());
}
