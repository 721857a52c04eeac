//! The transaction is the caller's: what the call may do to it, and what the caller's decision does
//! to the call.

use std::{sync::Arc, time::Duration};

use idem::{ErrorKind, Retry, idempotent};
use sqlx::Connection as _;
use tokio::task::JoinSet;

use crate::fixture::{
    Backend, Failure, Lite, Pg, Probe, Receipt, Tx, World, begin, effect, kind, pay, pay_now,
};

/// A repeat inside a transaction that goes on: no statement of it may fail.
async fn tx_10_unique_violation<B: Backend>() {
    let world = World::<B>::new(2).await;
    let probe = Probe::new();
    let first = world.pay("known", &probe).await.unwrap();
    let mut tx = world.begin().await;
    B::execute(&mut tx, effect("order")).await.unwrap();
    let again = pay::<B>(&mut tx, "known", 100, &probe).await.unwrap();
    B::execute(&mut tx, effect("audit")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((again, probe.runs()), (first, 1));
    for (name, count) in [("order", 1), ("audit", 1), ("known", 1)] {
        assert_eq!(world.effects(name).await, count, "{name}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Found {
    FirstRun,
    Replay,
    Mismatch,
    InProgress,
}

/// Both of the caller's rows stand or fall by the caller's own decision, whatever the call finds.
async fn tx_11_the_caller_decides<B: Backend>() {
    let world = World::<B>::new(4).await;
    // SQLite has one writer: there a running call is met at the begin, as a busy database.
    for found in [Found::FirstRun, Found::Replay, Found::Mismatch] {
        for commit in [true, false] {
            one_decision(&world, found, commit).await;
        }
    }
}

async fn one_decision<B: Backend>(world: &World<B>, found: Found, commit: bool) {
    let id = format!("{found:?}-{commit}");
    let probe = Probe::new();
    if matches!(found, Found::Replay | Found::Mismatch) {
        world.pay(&id, &probe).await.unwrap();
    }
    let mut winner = None;
    if found == Found::InProgress {
        let mut tx = world.begin().await;
        pay::<B>(&mut tx, &id, 100, &probe).await.unwrap();
        winner = Some(tx);
    }
    let before = world.effects(&id).await;

    let mut tx = world.begin().await;
    B::execute(&mut tx, effect(&format!("A-{id}")))
        .await
        .unwrap();
    let cents = if found == Found::Mismatch { 5 } else { 100 };
    let answer = pay_now::<B>(&mut tx, &id, cents, &probe).await;
    B::execute(&mut tx, effect(&format!("B-{id}")))
        .await
        .unwrap();
    if commit {
        tx.commit().await.unwrap();
    } else {
        tx.rollback().await.unwrap();
    }

    match found {
        Found::FirstRun | Found::Replay => assert_eq!(answer.unwrap().id, id),
        Found::Mismatch => assert_eq!(kind(answer), ErrorKind::FingerprintMismatch),
        Found::InProgress => {
            let error = answer.unwrap_err().idem();
            assert_eq!(error.kind(), ErrorKind::InProgress);
            assert!(matches!(error.retry(), Retry::Later(Some(_))));
        }
    }
    for row in ["A", "B"] {
        let rows = world.effects(&format!("{row}-{id}")).await;
        assert_eq!(rows, i64::from(commit), "{row} of {id}");
    }
    let runs = i64::from(found == Found::FirstRun && commit);
    assert_eq!(world.effects(&id).await, before + runs, "{id}");
    assert_eq!(probe.runs(), 1, "{id}");
    drop(winner);
}

/// The same, with every statement seen on the wire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tx_11_no_statement_of_the_library_ends_the_transaction() {
    let World { backend, .. } = World::<Pg>::new(1).await;
    let proxy = backend.0.proxy();
    let pool = backend.0.pool_through(&proxy, 4);
    let seen = World { pool, backend };
    for found in [
        Found::FirstRun,
        Found::Replay,
        Found::Mismatch,
        Found::InProgress,
    ] {
        for commit in [true, false] {
            one_decision(&seen, found, commit).await;
        }
    }
    // A winner that was dropped may still be rolling back.
    seen.backend.0.quiet().await;
    let count = |word: &str| {
        let starts = |text: &String| text.trim_start().to_uppercase().starts_with(word);
        proxy
            .statements()
            .iter()
            .filter(|&text| starts(text))
            .count()
    };
    // One transaction for each decision, two for the found records, two for the winners.
    assert_eq!(count("BEGIN"), 8 + 4 + 2);
    assert_eq!(count("COMMIT"), 4 + 4);
    assert_eq!(count("ROLLBACK"), 4 + 2);
    for word in [
        "SAVEPOINT",
        "RELEASE",
        "SET",
        "START",
        "END",
        "ABORT",
        "LOCK",
    ] {
        assert_eq!(count(word), 0, "{word}");
    }
}

/// The library takes no connection beside the caller's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tx_05_no_second_connection() {
    let world = World::<Pg>::new(2).await;
    let proxy = world.backend.0.proxy();
    let pool = world.backend.0.pool_through(&proxy, 2);
    let probe = Arc::new(Probe::new());
    let mut tasks = JoinSet::new();
    for n in 0..8 {
        let (pool, probe) = (pool.clone(), Arc::clone(&probe));
        tasks.spawn(async move {
            // Four distinct calls, each with a duplicate.
            let id = format!("call-{}", n / 2);
            let mut tx = begin::<Pg>(&pool).await;
            let receipt = pay::<Pg>(&mut tx, &id, 100, &probe).await.unwrap();
            tx.commit().await.unwrap();
            assert_eq!(receipt.id, id);
        });
    }
    tasks.join_all().await;
    assert_eq!(probe.runs(), 4);
    assert_eq!(proxy.accepted(), 2);
}

/// The same where a second connection would have to wait for the first for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tx_05_eight_calls_on_one_sqlite_connection() {
    let world = World::<Lite>::new(1).await;
    let (world, probe) = (Arc::new(world), Arc::new(Probe::new()));
    let mut tasks = JoinSet::new();
    for n in 0..8 {
        let (world, probe) = (Arc::clone(&world), Arc::clone(&probe));
        tasks.spawn(async move { world.pay(&format!("call-{}", n / 2), &probe).await.unwrap() });
    }
    tasks.join_all().await;
    assert_eq!(probe.runs(), 4);
}

#[idempotent(
    key = "pay:{id}",
    ttl = "1h",
    store = "tx",
    scope = "test.pay",
    shared_scope,
    wait = "1s"
)]
async fn pay_within_a_second<B: Backend>(
    tx: &mut Tx<'_, B>,
    id: &str,
    cents: i64,
) -> Result<Receipt, Failure> {
    B::execute(tx, effect(id)).await?;
    Ok(Receipt::of(id))
}

#[idempotent(
    key = "pay:{id}",
    ttl = "1h",
    store = "tx",
    scope = "test.pay",
    shared_scope
)]
async fn fails<B: Backend>(tx: &mut Tx<'_, B>, id: &str, cents: i64) -> Result<Receipt, Failure> {
    B::execute(tx, effect(id)).await?;
    Err(Failure::Business(id.to_owned()))
}

/// A dropped transaction is rolled back when the runtime gets round to it; whoever comes at once
/// waits for that, within its budget.
#[tokio::test(flavor = "current_thread")]
async fn tx_02_rollback_on_drop_is_only_queued() {
    async fn ends_by_error(world: &World<Pg>) -> Result<Receipt, Failure> {
        let mut tx = world.begin().await;
        let receipt = fails::<Pg>(&mut tx, "one", 100).await?;
        tx.commit().await?;
        Ok(receipt)
    }
    let world = World::<Pg>::new(2).await;
    let mut other = world.begin().await;
    ends_by_error(&world).await.unwrap_err();
    let receipt = pay_within_a_second::<Pg>(&mut other, "one", 100).await;
    assert_eq!(receipt.unwrap().id, "one");
    other.commit().await.unwrap();
    assert_eq!(world.effects("one").await, 1);
}

/// A connection outside a pool sends its queued rollback with its next statement only: the other
/// call's wait is bounded and ends in an error that may be retried.
#[tokio::test(flavor = "current_thread")]
async fn tx_02_a_rollback_that_is_never_sent_holds_nobody_for_ever() {
    let world = World::<Pg>::new(2).await;
    let mut conn = world.backend.0.connect().await;
    let mut dropped = conn.begin().await.unwrap();
    fails::<Pg>(&mut dropped, "one", 100).await.unwrap_err();
    drop(dropped);
    let mut tx = world.begin().await;
    let began = std::time::Instant::now();
    let error = pay_within_a_second::<Pg>(&mut tx, "one", 100)
        .await
        .unwrap_err()
        .idem();
    assert_eq!(error.kind(), ErrorKind::InProgress);
    assert!(matches!(error.retry(), Retry::Later(Some(_))));
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    // The same transaction goes on once the other's rollback is sent.
    conn.ping().await.unwrap();
    pay_within_a_second::<Pg>(&mut tx, "one", 100)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.effects("one").await, 1);
}

/// A private in-memory database has one connection, and goes with it; the error of a later call
/// names the table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tx_04_a_lost_memory_database_is_named() {
    let pool = Lite::open("sqlite::memory:", 1).await;
    Lite::migrate(&pool).await.unwrap();
    pool.acquire().await.unwrap().close().await.unwrap();
    let mut tx = begin::<Lite>(&pool).await;
    let error = fails::<Lite>(&mut tx, "one", 100).await.unwrap_err().idem();
    assert_eq!(
        (error.kind(), error.retry()),
        (ErrorKind::Schema, Retry::Never)
    );
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("idem_record"), "{cause}");
    assert!(error.to_string().contains("run the migrations"), "{error}");
}

on_both! {
    tx_10_unique_violation,
    tx_11_the_caller_decides,
}
