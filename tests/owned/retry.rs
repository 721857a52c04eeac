//! Transactions that the database gives up, and `retry`.

use std::sync::Arc;

use idem::{Answered, Effect, ErrorKind, Retry, idempotent, observe};
use idem_test_support::{Body, proxy::Fault};
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Barrier;

use crate::{
    postgres::{
        calls::{effects, records, write},
        db::{Fresh, Pool},
    },
    support::{Failure, order},
};

/// sqlx's error as the source of another one, and not in its place.
#[derive(Debug, thiserror::Error)]
enum Wrapped {
    #[error("idempotency")]
    Idem(#[from] idem::Error),
    #[error("database")]
    Sql(#[from] sqlx::Error),
}

/// An error two levels above sqlx's.
#[derive(Debug, thiserror::Error)]
enum Layered {
    #[error(transparent)]
    Idem(#[from] idem::Error),
    #[error("repository")]
    Repository(#[from] Wrapped),
}

/// `note` is taken apart by the body: it must be there again for the next run.
#[idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx, retry = 3)]
async fn transparent(pool: &Pool, no: u64, note: String, body: &Body) -> Result<usize, Failure> {
    let run = body.run().await;
    assert_eq!(note.into_bytes(), b"a note");
    write(tx, &order(no)).await?;
    Ok(run)
}

#[idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx, retry = 3)]
async fn wrapped(pool: &Pool, no: u64, note: String, body: &Body) -> Result<usize, Wrapped> {
    let run = body.run().await;
    drop(note);
    write(tx, &order(no)).await?;
    Ok(run)
}

#[idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx, retry = 3)]
async fn layered(pool: &Pool, no: u64, note: String, body: &Body) -> Result<usize, Layered> {
    let run = body.run().await;
    drop(note);
    write(tx, &order(no)).await.map_err(Wrapped::Sql)?;
    Ok(run)
}

#[idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx)]
async fn once(pool: &Pool, no: u64, note: String, body: &Body) -> Result<usize, Failure> {
    let run = body.run().await;
    drop(note);
    write(tx, &order(no)).await?;
    Ok(run)
}

/// Makes the next `times` transactions fail with this code at this place, and no others any more. A
/// sequence counts, which no roll-back turns back.
async fn failing(database: &Fresh, place: &str, code: &str, times: u32) {
    database
        .0
        .execute(&format!(
            "DROP TRIGGER IF EXISTS fail ON idem_record; DROP TRIGGER IF EXISTS fail ON effect; \
             DROP SEQUENCE IF EXISTS failed; CREATE SEQUENCE failed; \
             CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF nextval('failed') <= {times} THEN \
             RAISE EXCEPTION 'injected' USING ERRCODE = '{code}'; END IF; \
             RETURN NEW; END $$; \
             CREATE {place} FOR EACH ROW EXECUTE FUNCTION fail();"
        ))
        .await;
}

const RESERVING: &str = "TRIGGER fail BEFORE INSERT ON idem_record";
const IN_THE_BODY: &str = "TRIGGER fail BEFORE INSERT ON effect";
const COMPLETING: &str = "TRIGGER fail BEFORE UPDATE ON idem_record";
const AT_THE_COMMIT: &str =
    "CONSTRAINT TRIGGER fail AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED";

fn note() -> String {
    "a note".to_owned()
}

#[tokio::test]
async fn b2_the_body_runs_again_wherever_the_transaction_was_given_up() {
    let database = Fresh::new().await;
    let pool = database.pool(1).await;
    let mut no = 0;
    for (place, runs) in [
        (RESERVING, 1),
        (IN_THE_BODY, 3),
        (COMPLETING, 3),
        (AT_THE_COMMIT, 3),
    ] {
        for code in ["40001", "40P01"] {
            failing(&database, place, code, 2).await;
            no += 1;
            let body = Body::new();
            let (answer, seen) = observe(transparent(&pool, no, note(), &body)).await;
            assert_eq!(answer.unwrap(), runs, "{place} {code}");
            assert_eq!(body.runs(), runs, "{place} {code}");
            assert_eq!(seen.answered(), Some(Answered::FirstRun));
            assert_eq!(effects(&pool, no).await, 1);
            let (answer, seen) = observe(transparent(&pool, no, note(), &body)).await;
            assert_eq!(answer.unwrap(), runs);
            assert!(seen.replayed());
        }
    }
}

#[tokio::test]
async fn b2_a_lost_transaction_is_seen_behind_every_form_of_error() {
    let database = Fresh::new().await;
    let pool = database.pool(1).await;
    for (no, place) in (1..).zip([IN_THE_BODY, COMPLETING, AT_THE_COMMIT]) {
        failing(&database, place, "40001", 2).await;
        let body = Body::new();
        assert_eq!(wrapped(&pool, no, note(), &body).await.unwrap(), 3);
        failing(&database, place, "40001", 2).await;
        let body = Body::new();
        assert_eq!(layered(&pool, no + 10, note(), &body).await.unwrap(), 3);
    }
}

#[tokio::test]
async fn b2_retries_are_bounded() {
    let database = Fresh::new().await;
    let pool = database.pool(1).await;
    for (no, place) in (1..).zip([IN_THE_BODY, COMPLETING, AT_THE_COMMIT]) {
        failing(&database, place, "40001", 1000).await;
        let body = Body::new();
        let error = transparent(&pool, no, note(), &body).await.unwrap_err();
        assert_eq!(body.runs(), 4, "{place}: once, and three times again");
        assert_eq!(error.code().as_deref(), Some("40001"));
        if place != IN_THE_BODY {
            assert_eq!(error.kind(), ErrorKind::RetryTransaction);
        }
        assert_eq!(effects(&pool, no).await, 0);
        assert_eq!(records(&pool).await, 0);
        database.0.quiet().await;
    }
}

#[tokio::test]
async fn b2_without_retry_the_error_is_the_callers() {
    let database = Fresh::new().await;
    let pool = database.pool(1).await;
    for (no, place) in (1..).zip([IN_THE_BODY, COMPLETING, AT_THE_COMMIT]) {
        failing(&database, place, "40001", 1).await;
        let body = Body::new();
        let error = once(&pool, no, note(), &body).await.unwrap_err();
        assert_eq!(body.runs(), 1);
        if place == IN_THE_BODY {
            assert!(matches!(error, Failure::Sql(_)));
        } else {
            assert_eq!(error.kind(), ErrorKind::RetryTransaction);
            assert_eq!(error.effect(), Effect::None);
            assert_eq!(error.idem().retry(), Retry::NewTransaction);
        }
        assert_eq!(once(&pool, no, note(), &body).await.unwrap(), 2);
        assert_eq!(effects(&pool, no).await, 1);
    }
}

/// Before the body nothing has happened: that needs nobody's leave, and still ends.
#[tokio::test]
async fn b2_reserving_is_tried_again_without_retry_and_within_bounds() {
    let database = Fresh::new().await;
    failing(&database, RESERVING, "40001", 3).await;
    let pool = database.pool(1).await;
    let body = Body::new();
    assert_eq!(once(&pool, 1, note(), &body).await.unwrap(), 1);

    failing(&database, RESERVING, "40001", 1_000_000).await;
    let body = Body::new();
    let error = once(&pool, 2, note(), &body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RetryTransaction);
    assert_eq!(body.runs(), 0);
    let tries: i64 = sqlx::query_scalar("SELECT last_value FROM failed")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert!((2..=50).contains(&tries), "{tries} tries");
}

#[tokio::test]
async fn b2_other_errors_of_the_database_are_not_tried_again() {
    let database = Fresh::new().await;
    let pool = database.pool(1).await;
    for (no, place) in (1..).zip([IN_THE_BODY, COMPLETING, AT_THE_COMMIT]) {
        failing(&database, place, "23514", 1).await;
        let body = Body::new();
        let error = transparent(&pool, no, note(), &body).await.unwrap_err();
        assert_eq!(error.code().as_deref(), Some("23514"), "{place}");
        assert_eq!(body.runs(), 1);
        assert_eq!(effects(&pool, no).await, 0);
    }
}

#[idempotent(
    key = "{no}", ttl = "1h", store = pool, tx = tx, retry = 3, record_err = |_| true
)]
async fn records_all(pool: &Pool, no: u64, body: &Body) -> Result<usize, Failure> {
    body.run().await;
    write(tx, &order(no)).await?;
    Err(Failure::Busy)
}

/// A lost transaction is no answer of the function, whatever it calls final.
#[tokio::test]
async fn b2_a_lost_transaction_is_not_recorded_as_a_final_error() {
    let database = Fresh::new().await;
    failing(&database, IN_THE_BODY, "40001", 5).await;
    let pool = database.pool(1).await;
    let body = Body::new();
    let error = records_all(&pool, 1, &body).await.unwrap_err();
    assert!(matches!(error, Failure::Sql(_)), "{error:?}");
    assert_eq!(records(&pool).await, 0);
    let error = records_all(&pool, 1, &body).await.unwrap_err();
    assert!(matches!(error, Failure::Busy), "{error:?}");
    let (error, seen) = observe(records_all(&pool, 1, &body)).await;
    assert!(matches!(error, Err(Failure::Busy)));
    assert!(seen.replayed());
    assert_eq!(body.runs(), 6);
}

/// The answer is another call's then, and counts as such.
#[tokio::test]
async fn a10_a_retry_that_finds_the_call_done_by_another_one_is_a_replay() {
    let database = Fresh::new().await;
    failing(&database, IN_THE_BODY, "40001", 1).await;
    let (proxy, pool) = database.proxied(1);
    let (elsewhere, body) = (database.pool(1).await, Body::new());
    let again = proxy.on_nth("BEGIN", 2, Fault::HoldBefore);
    let retried = tokio::spawn({
        let (pool, body) = (pool.clone(), body.clone());
        async move { observe(transparent(&pool, 1, note(), &body)).await }
    });
    // The first transaction is rolled back before the other call can have the key.
    body.started(1).await;
    assert_eq!(transparent(&elsewhere, 1, note(), &body).await.unwrap(), 2);
    again.release();
    let (answer, seen) = retried.await.unwrap();
    assert_eq!(answer.unwrap(), 2);
    assert!(seen.replayed());
    assert_eq!(effects(&elsewhere, 1).await, 1);
}

/// Only its number is recorded.
#[derive(Debug, PartialEq)]
struct Bill {
    run: usize,
    effects: i64,
}

/// Made again from what is in the database now.
async fn rebuild(pool: &Pool, no: u64, run: usize) -> Result<Bill, Failure> {
    let effects = effects(pool, no).await;
    Ok(Bill { run, effects })
}

#[idempotent(
    key = "{no}", ttl = "1h", store = pool, tx = tx, retry = 3,
    keep = |bill: &Bill| bill.run, rebuild = rebuild(elsewhere, no, kept)
)]
async fn billed(pool: &Pool, no: u64, elsewhere: &Pool, body: &Body) -> Result<Bill, Failure> {
    let run = body.run().await;
    write(tx, &order(no)).await?;
    // Not what is in the database by the time of a replay.
    Ok(Bill { run, effects: -1 })
}

/// What another call recorded meanwhile is a part, from which the answer is made.
#[tokio::test]
async fn a11_a_retry_that_finds_the_call_done_by_another_one_rebuilds_its_answer() {
    let database = Fresh::new().await;
    failing(&database, IN_THE_BODY, "40001", 1).await;
    let (proxy, pool) = database.proxied(1);
    let (elsewhere, body) = (database.pool(1).await, Body::new());
    let again = proxy.on_nth("BEGIN", 2, Fault::HoldBefore);
    let retried = tokio::spawn({
        let (pool, elsewhere, body) = (pool.clone(), elsewhere.clone(), body.clone());
        async move { observe(billed(&pool, 1, &elsewhere, &body)).await }
    });
    body.started(1).await;
    let first = billed(&elsewhere, 1, &elsewhere, &body).await.unwrap();
    assert_eq!(
        first,
        Bill {
            run: 2,
            effects: -1
        }
    );
    again.release();
    let (answer, seen) = retried.await.unwrap();
    assert_eq!(answer.unwrap(), Bill { run: 2, effects: 1 });
    assert!(seen.replayed());
    assert_eq!((body.runs(), effects(&elsewhere, 1).await), (2, 1));
}

#[idempotent(
    key = "{no}", ttl = "1ms", tombstone = "1d", store = pool, tx = tx, retry = 3,
    backstop = done(tx, no)
)]
async fn soon_gone(pool: &Pool, no: u64, body: &Body) -> Result<usize, Failure> {
    let run = body.run().await;
    write(tx, &order(no)).await?;
    Ok(run)
}

async fn done(
    tx: &mut sqlx::PgTransaction<'static>,
    no: u64,
) -> Result<Option<usize>, sqlx::Error> {
    let found = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM effect WHERE no = $1");
    let found = found.bind(i64::try_from(no).unwrap_or(0));
    let found = found.fetch_one(&mut **tx).await?;
    Ok((found > 0).then_some(100))
}

#[tokio::test]
async fn a12_a_retry_that_finds_a_tombstone_asks_the_backstop() {
    let database = Fresh::new().await;
    failing(&database, IN_THE_BODY, "40001", 1).await;
    let (proxy, pool) = database.proxied(1);
    let (elsewhere, body) = (database.pool(1).await, Body::new());
    let again = proxy.on_nth("BEGIN", 2, Fault::HoldBefore);
    let retried = tokio::spawn({
        let (pool, body) = (pool.clone(), body.clone());
        async move { observe(soon_gone(&pool, 1, &body)).await }
    });
    body.started(1).await;
    assert_eq!(soon_gone(&elsewhere, 1, &body).await.unwrap(), 2);
    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    again.release();
    let (answer, seen) = retried.await.unwrap();
    assert_eq!(answer.unwrap(), 100);
    assert!(seen.replayed());
    assert_eq!((body.runs(), effects(&elsewhere, 1).await), (2, 1));
}

/// A pool whose transactions have this isolation level.
async fn isolated(database: &Fresh, level: &str, max: u32) -> Pool {
    let options = database
        .0
        .options()
        .options([("default_transaction_isolation", level)]);
    PgPoolOptions::new()
        .max_connections(max)
        .connect_with(options)
        .await
        .unwrap()
}

/// Each adds what it has read of the other's account: one of two that run at the same time must be
/// given up under SERIALIZABLE, and is under no other level.
#[idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx, retry = 10)]
async fn skewed(pool: &Pool, no: u64, both: &Barrier, body: &Body) -> Result<i64, Failure> {
    let sum: Option<i64> = sqlx::query_scalar("SELECT sum(cents)::bigint FROM effect")
        .fetch_one(&mut **tx)
        .await?;
    if body.run().await <= 2 {
        both.wait().await;
    }
    write(tx, &order(no)).await?;
    Ok(sum.unwrap_or(0))
}

#[tokio::test]
async fn b2_write_skew_at_the_commit_is_run_again() {
    let database = Fresh::new().await;
    let pool = isolated(&database, "serializable", 4).await;
    let (both, body) = (Arc::new(Barrier::new(2)), Body::new());
    let calls = [1, 2].map(|no| {
        let (pool, both, body) = (pool.clone(), Arc::clone(&both), body.clone());
        tokio::spawn(async move { skewed(&pool, no, &both, &body).await })
    });
    let mut sums = Vec::new();
    for call in calls {
        sums.push(call.await.unwrap().unwrap());
    }
    sums.sort_unstable();
    assert_eq!(sums, [0, 500], "as if one had run after the other");
    assert!(body.runs() >= 3);
    let (one, two) = (effects(&pool, 1).await, effects(&pool, 2).await);
    assert_eq!((one, two), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f5_equal_calls_are_one_at_every_isolation_level() {
    let database = Fresh::new().await;
    let levels = ["read committed", "repeatable read", "serializable"];
    for (no, level) in (1..).zip(levels) {
        // Pools of their own stand for processes: between them nothing is coalesced.
        let mut calls = tokio::task::JoinSet::new();
        let body = Body::new();
        for _ in 0..4 {
            let pool = isolated(&database, level, 2).await;
            for _ in 0..25 {
                let (pool, body) = (pool.clone(), body.clone());
                calls.spawn(async move { transparent(&pool, no, note(), &body).await });
            }
        }
        let mut answers = Vec::new();
        for answer in calls.join_all().await {
            answers.push(answer.unwrap());
        }
        assert!(
            answers.iter().all(|answer| *answer == answers[0]),
            "{level}"
        );
        let pool = database.pool(1).await;
        assert_eq!(effects(&pool, no).await, 1, "{level}");
    }
}
