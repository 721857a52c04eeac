//! How a call in a caller's transaction stands, asked from inside and from outside.

use std::time::Duration;

use idem::retention::Left;
use idem::status::{CallRef, Status};
use idem::store::sql::Records;
use idem::{Effect, ErrorKind, idempotent};

use crate::fixture::{Backend, Failure, Probe, Receipt, Tx, World, pay, pay_call, until};

on_both!(
    a_running_call_is_seen_from_another_connection,
    what_is_rolled_back_or_released_is_absent,
    a_transaction_sees_its_own_calls,
    a_call_that_was_dropped_midway_is_abandoned_inside_and_in_progress_outside,
    what_is_over_is_absent_and_what_is_too_large_is_gone,
    forgetting_stands_and_falls_with_the_transaction,
    other_tables_and_namespaces_are_asked_where_they_are,
    a_hundred_questions_refuse_nobody,
    a_call_that_ends_while_it_is_asked_for_is_never_absent,
    a_key_that_is_known_longer_than_its_outcome_is_done,
);

fn call<B: Backend>(id: &str) -> CallRef<Receipt, Failure> {
    pay_call::<B>(id).unwrap()
}

type Answer<T> = Status<Result<T, Failure>>;

#[track_caller]
fn outcome<T: std::fmt::Debug>(status: Answer<T>) -> T {
    match status {
        Status::Completed(done) => {
            assert!(done.recorded_at.is_some());
            done.outcome.unwrap()
        }
        other => panic!("{other:?}"),
    }
}

async fn outside<B: Backend>(world: &World<B>, id: &str) -> Answer<Receipt> {
    call::<B>(id).status(&world.pool).await.unwrap()
}

async fn a_running_call_is_seen_from_another_connection<B: Backend>() {
    let world = World::<B>::new(4).await;
    let probe = Probe::gated();
    assert!(outside(&world, "a").await.is_absent());
    let mut tx = world.begin().await;
    {
        let mut running = std::pin::pin!(pay::<B>(&mut tx, "a", 100, &probe));
        tokio::select! {
            _ = &mut running => panic!("it is gated"),
            () = probe.entered(1) => {}
        }
        let Status::InProgress(holder) = outside(&world, "a").await else {
            panic!("not in progress");
        };
        if B::NAME == "postgres" {
            let holder = format!("{holder:?}");
            assert!(
                holder.contains("process ") && holder.contains("since: Some"),
                "{holder}"
            );
            // Another key is told apart.
            assert!(outside(&world, "b").await.is_absent());
        }
        let asked = call::<B>("a");
        let forgotten = asked.forget(&world.pool);
        let forgotten = tokio::time::timeout(Duration::from_secs(1), forgotten);
        match (B::NAME, forgotten.await) {
            ("postgres", Ok(Err(error))) => {
                assert_eq!(error.kind(), ErrorKind::InProgress);
                assert_eq!(error.effect(), Effect::None);
            }
            // It waits for the writer.
            ("sqlite", Err(_)) => {}
            (name, other) => panic!("{name}: {other:?}"),
        }
    }
    tx.rollback().await.unwrap();
    until("absent", || async {
        outside(&world, "a").await.is_absent()
    })
    .await;
    let receipt = world.pay("a", &Probe::new()).await.unwrap();
    let status = outside(&world, "a").await;
    match &status {
        Status::Completed(done) => match done.left {
            Left::For(left) => assert!(left > Duration::from_secs(3500), "{left:?}"),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
    assert_eq!(outcome(status), receipt);
    assert_eq!(world.effects("a").await, 1);
}

#[idempotent(
    key = "pay:{id}",
    ttl = "1h",
    store = "tx",
    scope = "test.pay",
    shared_scope
)]
async fn fails<B: Backend>(tx: &mut Tx<'_, B>, id: &str) -> Result<Receipt, Failure> {
    Err(Failure::Business(id.to_owned()))
}

async fn what_is_rolled_back_or_released_is_absent<B: Backend>() {
    let world = World::<B>::new(2).await;
    let mut tx = world.begin().await;
    pay::<B>(&mut tx, "a", 1, &Probe::new()).await.unwrap();
    tx.rollback().await.unwrap();
    assert!(outside(&world, "a").await.is_absent());
    // An error, and the caller goes on and commits all the same.
    let mut tx = world.begin().await;
    fails::<B>(&mut tx, "b").await.unwrap_err();
    assert!(call::<B>("b").status(&mut tx).await.unwrap().is_absent());
    tx.commit().await.unwrap();
    assert!(outside(&world, "b").await.is_absent());
}

async fn a_transaction_sees_its_own_calls<B: Backend>() {
    let world = World::<B>::new(2).await;
    let mut tx = world.begin().await;
    let asked = call::<B>("a");
    assert!(asked.status(&mut tx).await.unwrap().is_absent());
    let receipt = pay::<B>(&mut tx, "a", 1, &Probe::new()).await.unwrap();
    assert_eq!(outcome(asked.status(&mut tx).await.unwrap()), receipt);
    // Not committed: who is outside must not take it for done.
    assert!(outside(&world, "a").await.is_in_progress());
    tx.commit().await.unwrap();
    assert_eq!(outcome(outside(&world, "a").await), receipt);
}

async fn a_call_that_was_dropped_midway_is_abandoned_inside_and_in_progress_outside<B: Backend>() {
    let world = World::<B>::new(2).await;
    let probe = Probe::gated();
    let mut tx = world.begin().await;
    tokio::select! {
        _ = pay::<B>(&mut tx, "a", 1, &probe) => panic!("it is gated"),
        () = probe.entered(1) => {}
    }
    let inside = call::<B>("a").status(&mut tx).await.unwrap();
    assert!(matches!(inside, Status::Abandoned(_)), "{inside:?}");
    assert!(outside(&world, "a").await.is_in_progress());
    tx.rollback().await.unwrap();
    assert!(outside(&world, "a").await.is_absent());
}

#[idempotent(
    key = "{id}", ttl = "1h", store = "tx", scope = "test.large", max_outcome = "10B",
    oversize = "tombstone", companion = large_call
)]
async fn large<B: Backend>(tx: &mut Tx<'_, B>, id: &str) -> Result<String, Failure> {
    Ok("x".repeat(id.len() + 97))
}

async fn what_is_over_is_absent_and_what_is_too_large_is_gone<B: Backend>() {
    let world = World::<B>::new(2).await;
    world.pay("a", &Probe::new()).await.unwrap();
    let mut tx = world.begin().await;
    large::<B>(&mut tx, "a").await.unwrap();
    tx.commit().await.unwrap();
    let gone = large_call::<B>("a").unwrap().status(&world.pool).await;
    match gone.unwrap() {
        Status::OutcomeGone(gone) => {
            assert_eq!(gone.bytes, Some(100));
            assert!(gone.recorded_at.is_some());
        }
        other => panic!("{other:?}"),
    }
    world
        .execute("UPDATE idem_record SET expires_at = created_at")
        .await;
    for id in ["a"] {
        assert!(outside(&world, id).await.is_absent());
        assert!(!call::<B>(id).forget(&world.pool).await.unwrap());
    }
    // The next one takes the row over, which nobody outside sees.
    let mut tx = world.begin().await;
    pay::<B>(&mut tx, "a", 1, &Probe::new()).await.unwrap();
    assert!(outside(&world, "a").await.is_in_progress());
    tx.rollback().await.unwrap();
    assert!(outside(&world, "a").await.is_absent());
}

async fn forgetting_stands_and_falls_with_the_transaction<B: Backend>() {
    let world = World::<B>::new(2).await;
    let first = world.pay("a", &Probe::new()).await.unwrap();
    let mut tx = world.begin().await;
    assert!(call::<B>("a").forget(&mut tx).await.unwrap());
    assert!(call::<B>("a").status(&mut tx).await.unwrap().is_absent());
    assert!(!call::<B>("a").forget(&mut tx).await.unwrap());
    tx.rollback().await.unwrap();
    assert_eq!(outcome(outside(&world, "a").await), first);
    assert!(call::<B>("a").forget(&world.pool).await.unwrap());
    assert!(outside(&world, "a").await.is_absent());
    assert!(!call::<B>("a").forget(&world.pool).await.unwrap());
    let again = world.pay("a", &Probe::new()).await.unwrap();
    assert_ne!(again, first);
    assert_eq!(world.effects("a").await, 2);
}

#[idempotent(
    key = "{id}", ttl = "1h", store = "records.on(tx)", scope = "test.on", companion = on_call
)]
async fn on<B: Backend>(
    tx: &mut Tx<'_, B>,
    records: &Records,
    id: &str,
) -> Result<String, Failure> {
    Ok(id.to_owned())
}

async fn other_tables_and_namespaces_are_asked_where_they_are<B: Backend>() {
    let world = World::<B>::new(2).await;
    let records = Records::default().namespace("eu");
    let call = on_call::<B>("a").unwrap();
    let mut tx = world.begin().await;
    on::<B>(&mut tx, &records, "a").await.unwrap();
    assert_eq!(
        outcome(call.status(records.on(&mut tx)).await.unwrap()),
        "a"
    );
    tx.commit().await.unwrap();
    let there = records.pool(&world.pool);
    assert_eq!(outcome(call.status(&there).await.unwrap()), "a");
    assert!(call.status(&world.pool).await.unwrap().is_absent());
    assert!(!call.forget(&world.pool).await.unwrap());
    assert!(call.forget(there).await.unwrap());
    assert!(
        call.status(records.pool(&world.pool))
            .await
            .unwrap()
            .is_absent()
    );
}

/// Asking gets in nobody's way: not even a call that would be refused at once.
async fn a_hundred_questions_refuse_nobody<B: Backend>() {
    let world = World::<B>::new(6).await;
    let ask = async {
        for n in 0..100 {
            let _ = outside(&world, &n.to_string()).await;
        }
    };
    let calls = async {
        for n in 0..100 {
            let mut tx = world.begin().await;
            let id = n.to_string();
            let answer = crate::fixture::pay_now::<B>(&mut tx, &id, 1, &Probe::new()).await;
            answer.unwrap();
            tx.commit().await.unwrap();
        }
    };
    tokio::join!(ask, calls);
    assert_eq!(world.records().await, (100, 0));
}

/// Between the question who is at it and the one what is committed lies the commit.
async fn a_call_that_ends_while_it_is_asked_for_is_never_absent<B: Backend>() {
    let world = World::<B>::new(4).await;
    for n in 0..100 {
        let id = n.to_string();
        let pay = async {
            world.pay(&id, &Probe::new()).await.unwrap();
        };
        let ask = async {
            let mut begun = false;
            loop {
                match outside(&world, &id).await {
                    Status::Completed(_) => return,
                    Status::InProgress(_) => begun = true,
                    Status::Absent => assert!(!begun, "absent after it was in progress"),
                    other => panic!("{other:?}"),
                }
            }
        };
        tokio::join!(pay, ask);
    }
}

#[idempotent(
    key = "{id}", ttl = "1h", tombstone = "3h", store = "tx", scope = "test.buried",
    companion = buried_call
)]
async fn buried<B: Backend>(tx: &mut Tx<'_, B>, id: &str) -> Result<String, Failure> {
    Ok(id.to_owned())
}

async fn a_key_that_is_known_longer_than_its_outcome_is_done<B: Backend>() {
    let world = World::<B>::new(2).await;
    let mut tx = world.begin().await;
    buried::<B>(&mut tx, "a").await.unwrap();
    tx.commit().await.unwrap();
    let call = buried_call::<B>("a").unwrap();
    assert_eq!(outcome(call.status(&world.pool).await.unwrap()), "a");
    let over = "UPDATE idem_record SET expires_at = created_at";
    world.execute(over).await;
    for buried in [false, true] {
        if buried {
            let records = Records::default();
            assert_eq!(records.purge(&world.pool, 10).await.unwrap(), 1);
        }
        match call.status(&world.pool).await.unwrap() {
            Status::OutcomeGone(gone) => {
                assert!(gone.recorded_at.is_some());
                let Left::For(left) = gone.left else {
                    panic!("{gone:?}");
                };
                assert!(left > Duration::from_secs(10_000), "{left:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(call.forget(&world.pool).await.unwrap());
    assert!(call.status(&world.pool).await.unwrap().is_absent());
}
