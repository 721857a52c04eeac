//! What the body does to the transaction: it fails, panics, poisons it, ends it.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use idem::{Effect, ErrorKind, Retry, idempotent};
use serde::{Deserialize, Serialize};

use crate::fixture::{Backend, Failure, Lite, Pg, Probe, Receipt, Tx, World, effect, kind, pay};

/// What a body does after its effect.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Succeed,
    Fail,
    FailForGood,
    /// A statement fails and the body goes on as if nothing had happened.
    PoisonAndSucceed,
    PoisonAndFail,
    PoisonAndFailForGood,
    RollBack,
    Commit,
    Panic,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
enum Refusal {
    #[error("not now")]
    NotNow,
    #[error("never")]
    Never,
    #[error("framework: {0}")]
    Idem(String, #[serde(skip)] Option<Kind>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Kind(ErrorKind, Effect, Retry);

impl From<idem::Error> for Refusal {
    fn from(error: idem::Error) -> Self {
        let kind = Kind(error.kind(), error.effect(), error.retry());
        Self::Idem(error.to_string(), Some(kind))
    }
}

#[idempotent(
    key = "does:{id}", ttl = "1h", store = "tx",
    record_err = |e| matches!(e, Refusal::Never)
)]
async fn acts<B: Backend>(
    tx: &mut Tx<'_, B>,
    id: &str,
    does: Does,
    probe: &Probe,
) -> Result<Receipt, Refusal> {
    probe.enter().await;
    B::execute(tx, effect(id)).await.unwrap();
    let statement = match does {
        Does::PoisonAndSucceed | Does::PoisonAndFail | Does::PoisonAndFailForGood => {
            Some("INSERT INTO effect (there_is_no_such_column) VALUES (1)")
        }
        Does::RollBack => Some("ROLLBACK"),
        Does::Commit => Some("COMMIT"),
        Does::Succeed | Does::Fail | Does::FailForGood | Does::Panic => None,
    };
    if let Some(statement) = statement {
        B::execute(tx, statement).await.ok();
    }
    match does {
        Does::Fail | Does::PoisonAndFail => Err(Refusal::NotNow),
        Does::FailForGood | Does::PoisonAndFailForGood => Err(Refusal::Never),
        Does::Panic => panic!("the body panics"),
        _ => Ok(Receipt::of(id)),
    }
}

fn framework(answer: Result<Receipt, Refusal>) -> Kind {
    match answer.unwrap_err() {
        Refusal::Idem(_, Some(kind)) => kind,
        other => panic!("not an error of the framework: {other:?}"),
    }
}

async fn succeeds_once<B: Backend>(world: &World<B>, id: &str) {
    let probe = Probe::new();
    for _ in 0..2 {
        let mut tx = world.begin().await;
        acts::<B>(&mut tx, id, Does::Succeed, &probe).await.unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!((world.effects(id).await, probe.runs()), (1, 1), "{id}");
}

async fn ip_16a_recording_fails_and_everything_rolls_back<B: Backend>() {
    let world = World::<B>::new(2).await;
    for commit in [false, true] {
        let id = format!("commit-{commit}");
        B::fail_recording(&mut world.pool.acquire().await.unwrap(), true).await;
        let mut tx = world.begin().await;
        let probe = Probe::new();
        let error = pay::<B>(&mut tx, &id, 100, &probe)
            .await
            .unwrap_err()
            .idem();
        assert_eq!(error.effect(), Effect::None, "{error}");
        // A full disk there, a trigger that refuses here: neither is better in a new transaction.
        if B::NAME == Pg::NAME {
            assert_eq!(error.kind(), ErrorKind::StoreExhausted);
            assert!(matches!(error.retry(), Retry::Later(Some(_))));
        } else {
            assert_eq!(error.kind(), ErrorKind::StoreRefused);
            assert_eq!(error.retry(), Retry::Never);
        }
        if commit {
            // Postgres answers the commit of an aborted transaction with a rollback.
            tx.commit().await.ok();
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(world.effects(&id).await, 0);
        assert_eq!(world.records().await.1, 0);
        B::fail_recording(&mut world.pool.acquire().await.unwrap(), false).await;
        world.pay(&id, &probe).await.unwrap();
        assert_eq!((world.effects(&id).await, probe.runs()), (1, 2));
        world
            .execute(if B::NAME == Pg::NAME {
                "DROP FUNCTION refuse"
            } else {
                "SELECT 1"
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poisoned_transaction_is_not_taken_for_one_that_held() {
    let world = World::<Pg>::new(2).await;
    let mut tx = world.begin().await;
    let answer = acts::<Pg>(&mut tx, "one", Does::PoisonAndSucceed, &Probe::new()).await;
    let expected = Kind(ErrorKind::TransactionEnded, Effect::None, Retry::Never);
    assert_eq!(framework(answer), expected);
    tx.commit().await.ok();
    assert_eq!(
        (world.effects("one").await, world.records().await),
        (0, (0, 0))
    );
    succeeds_once(&world, "one").await;
}

/// A failed statement of SQLite's leaves the transaction whole: so does the call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_statement_does_not_poison_sqlite() {
    let world = World::<Lite>::new(2).await;
    let mut tx = world.begin().await;
    acts::<Lite>(&mut tx, "one", Does::PoisonAndSucceed, &Probe::new())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        (world.effects("one").await, world.records().await),
        (1, (1, 0))
    );
}

async fn the_body_rolls_back_itself<B: Backend>() {
    let world = World::<B>::new(2).await;
    let mut tx = world.begin().await;
    B::execute(&mut tx, effect("caller")).await.unwrap();
    let answer = acts::<B>(&mut tx, "one", Does::RollBack, &Probe::new()).await;
    let expected = Kind(ErrorKind::TransactionEnded, Effect::Unknown, Retry::Never);
    assert_eq!(framework(answer), expected);
    tx.commit().await.ok();
    assert_eq!(
        (world.effects("one").await, world.effects("caller").await),
        (0, 0)
    );
    assert_eq!(world.records().await, (0, 0));
    // Behind sqlx's back: it still counts that transaction, and SQLite's connection stays unusable.
    let (backend, pool) = (world.backend, world.pool);
    pool.close().await;
    let pool = B::open(&backend.url(), 2).await;
    succeeds_once(&World { pool, backend }, "one").await;
}

/// The reservation without outcome cannot be committed, not even by the body.
async fn the_body_commits_itself<B: Backend>() {
    let world = World::<B>::new(2).await;
    let mut tx = world.begin().await;
    let answer = acts::<B>(&mut tx, "one", Does::Commit, &Probe::new()).await;
    assert_eq!(
        world.effects("one").await,
        0,
        "the body's commit was refused"
    );
    if B::NAME == Pg::NAME {
        assert_eq!(framework(answer).0, ErrorKind::TransactionEnded);
        tx.commit().await.ok();
        assert_eq!(world.records().await, (0, 0));
    } else {
        // A refused commit leaves SQLite's transaction open: nothing has happened.
        answer.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(
            (world.effects("one").await, world.records().await),
            (1, (1, 0))
        );
        return;
    }
    succeeds_once(&world, "one").await;
}

async fn an_error_and_the_caller_commits<B: Backend>() {
    let world = World::<B>::new(2).await;
    let probe = Probe::new();
    let mut tx = world.begin().await;
    B::execute(&mut tx, effect("caller")).await.unwrap();
    let answer = acts::<B>(&mut tx, "one", Does::Fail, &probe).await;
    assert_eq!(answer, Err(Refusal::NotNow));
    // Released: the same transaction may call again.
    let answer = acts::<B>(&mut tx, "one", Does::Fail, &probe).await;
    assert_eq!((answer, probe.runs()), (Err(Refusal::NotNow), 2));
    tx.commit().await.unwrap();
    assert_eq!(world.records().await, (0, 0), "the reservation is gone");
    assert_eq!(world.effects("caller").await, 1);
    assert_eq!(
        world.effects("one").await,
        2,
        "what the body wrote is the caller's to keep"
    );
    world.execute("DELETE FROM effect").await;
    succeeds_once(&world, "one").await;
}

async fn an_error_and_the_caller_rolls_back<B: Backend>() {
    let world = World::<B>::new(2).await;
    for does in [Does::Fail, Does::FailForGood] {
        let mut tx = world.begin().await;
        acts::<B>(&mut tx, "one", does, &Probe::new())
            .await
            .unwrap_err();
        tx.rollback().await.unwrap();
        assert_eq!(
            (world.effects("one").await, world.records().await),
            (0, (0, 0))
        );
    }
    succeeds_once(&world, "one").await;
}

/// A final error is committed with the caller's transaction and replayed as itself.
async fn ip_07_a_final_error_is_replayed<B: Backend>() {
    let world = World::<B>::new(2).await;
    let probe = Probe::new();
    for replayed in [false, true, true] {
        let mut tx = world.begin().await;
        let call = acts::<B>(&mut tx, "one", Does::FailForGood, &probe);
        let (answer, seen) = idem::observe(call).await;
        assert_eq!((answer, seen.replayed()), (Err(Refusal::Never), replayed));
        tx.commit().await.unwrap();
    }
    assert_eq!(probe.runs(), 1);
    assert_eq!(world.records().await, (1, 0));
}

/// The body's own error is the answer, also where nothing more can be done in the transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_inside_an_aborted_transaction() {
    let world = World::<Pg>::new(2).await;
    for (does, refusal) in [
        (Does::PoisonAndFail, Refusal::NotNow),
        (Does::PoisonAndFailForGood, Refusal::Never),
    ] {
        let mut tx = world.begin().await;
        let answer = acts::<Pg>(&mut tx, "one", does, &Probe::new()).await;
        assert_eq!(answer, Err(refusal));
        tx.commit().await.ok();
        assert_eq!(
            (world.effects("one").await, world.records().await),
            (0, (0, 0))
        );
    }
    succeeds_once(&world, "one").await;
}

async fn a_panic_is_caught_and_the_caller_commits<B: Backend>() {
    let world = World::<B>::new(2).await;
    let mut tx = world.begin().await;
    let probe = Probe::new();
    let call = acts::<B>(&mut tx, "one", Does::Panic, &probe);
    AssertUnwindSafe(call).catch_unwind().await.unwrap_err();
    let refused = tx.commit().await.unwrap_err();
    assert!(B::is_half_done(&refused), "{refused:?}");
    assert_eq!(
        (world.effects("one").await, world.records().await),
        (0, (0, 0))
    );
    succeeds_once(&world, "one").await;
}

/// `Some(())` is written as `null` and would be read as `None`.
#[idempotent(key = "lossy:{id}", ttl = "1h", store = "tx")]
async fn lossy<B: Backend>(tx: &mut Tx<'_, B>, id: &str) -> Result<Option<()>, Failure> {
    B::execute(tx, effect(id)).await?;
    Ok(Some(()))
}

async fn an_outcome_that_cannot_be_recorded<B: Backend>() {
    let world = World::<B>::new(2).await;
    for commit in [true, false] {
        let mut tx = world.begin().await;
        let answer = lossy::<B>(&mut tx, "one").await;
        assert_eq!(kind(answer), ErrorKind::OutcomeNotRecordable);
        if commit {
            let refused = tx.commit().await.unwrap_err();
            assert!(B::is_half_done(&refused), "{refused:?}");
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(
            (world.effects("one").await, world.records().await),
            (0, (0, 0))
        );
    }
}

on_both! {
    ip_16a_recording_fails_and_everything_rolls_back,
    the_body_rolls_back_itself,
    the_body_commits_itself,
    an_error_and_the_caller_commits,
    an_error_and_the_caller_rolls_back,
    ip_07_a_final_error_is_replayed,
    a_panic_is_caught_and_the_caller_commits,
    an_outcome_that_cannot_be_recorded,
}
