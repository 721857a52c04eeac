//! Which answers are kept.

use std::sync::Mutex;

use idem::{Answered, ErrorKind, MemoryStore, idempotent, observe};
use idem_test_support::Body;
use sqlx::SqliteTransaction;

use crate::support::{Failure, Fresh, committed, write};

/// An effect that no transaction takes back. A type of its own: a `Mutex` serialises, and would be
/// part of the payload.
#[derive(Default)]
struct Ledger(Mutex<Vec<u64>>);

impl Ledger {
    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

fn spend(ledger: &Ledger, no: u64) -> usize {
    let mut ledger = ledger.0.lock().unwrap();
    ledger.push(no);
    ledger.len()
}

fn declined() -> Failure {
    Failure::Declined("no money".to_owned())
}

#[idempotent(key = "{no}", ttl = "1h", store = store)]
async fn released(store: &MemoryStore, no: u64, ledger: &Ledger) -> Result<(), Failure> {
    spend(ledger, no);
    Err(declined())
}

#[idempotent(key = "{no}", ttl = "1h", store = store, record_err = Failure::is_final)]
async fn final_only(store: &MemoryStore, no: u64, ledger: &Ledger) -> Result<usize, Failure> {
    match spend(ledger, no) {
        1 => Err(Failure::Busy),
        _ => Err(declined()),
    }
}

#[idempotent(key = "{no}", ttl = "1h", store = store, record_err = all)]
async fn every(store: &MemoryStore, no: u64, ledger: &Ledger) -> Result<usize, Failure> {
    spend(ledger, no);
    Err(Failure::Busy)
}

#[idempotent(key = "{no}", ttl = "1h", store = store, record_err = |error| error.is_final())]
async fn by_closure(store: &MemoryStore, no: u64, ledger: &Ledger) -> Result<usize, Failure> {
    spend(ledger, no);
    Err(declined())
}

#[tokio::test]
async fn ip_07_by_default_an_error_is_released_and_the_next_call_runs() {
    let (store, ledger) = (MemoryStore::new(), Ledger::default());
    for run in 1..=2 {
        let (answer, seen) = observe(released(&store, 7, &ledger)).await;
        assert!(matches!(answer, Err(Failure::Declined(_))));
        assert!(!seen.replayed());
        assert_eq!(ledger.len(), run);
    }
    assert_eq!(store.len(), 0);
}

#[tokio::test]
async fn ip_07_final_errors_are_replayed_with_the_mark_and_others_are_not() {
    let (store, ledger) = (MemoryStore::new(), Ledger::default());
    let first = final_only(&store, 7, &ledger).await;
    assert!(matches!(first, Err(Failure::Busy)));
    for replayed in [false, true, true] {
        let (answer, seen) = observe(final_only(&store, 7, &ledger)).await;
        assert!(matches!(answer, Err(Failure::Declined(why)) if why == "no money"));
        assert_eq!(seen.replayed(), replayed);
    }
    assert_eq!(ledger.len(), 2);
}

#[tokio::test]
async fn ip_07_all_and_a_closure_choose_too() {
    let (store, ledger) = (MemoryStore::new(), Ledger::default());
    for replayed in [false, true] {
        let (answer, seen) = observe(every(&store, 7, &ledger)).await;
        assert!(matches!(answer, Err(Failure::Busy)));
        assert_eq!(seen.replayed(), replayed);
        let (answer, seen) = observe(by_closure(&store, 7, &ledger)).await;
        assert!(matches!(answer, Err(Failure::Declined(_))));
        assert_eq!(seen.replayed(), replayed);
    }
    assert_eq!(ledger.len(), 2);
}

#[idempotent(key = "{no}", ttl = "1h", store = tx)]
async fn released_in(
    tx: &mut SqliteTransaction<'_>,
    no: u64,
    ledger: &Ledger,
) -> Result<(), Failure> {
    write(tx, "released").await?;
    spend(ledger, no);
    Err(declined())
}

#[idempotent(key = "{no}", ttl = "1h", store = tx, record_err = Failure::is_final)]
async fn final_in(tx: &mut SqliteTransaction<'_>, no: u64, ledger: &Ledger) -> Result<(), Failure> {
    write(tx, "final").await?;
    spend(ledger, no);
    Err(declined())
}

#[tokio::test]
async fn ip_07_in_a_transaction_a_released_error_leaves_what_the_caller_decides() {
    let (fresh, ledger) = (Fresh::new().await, Ledger::default());
    // The caller swallows the error and commits: what the body wrote is its own, the key is free.
    for run in 1..=2 {
        let mut tx = fresh.begin().await;
        assert!(released_in(&mut tx, 7, &ledger).await.is_err());
        tx.commit().await.unwrap();
        assert_eq!(fresh.effects().await, run);
    }
    let mut tx = fresh.begin().await;
    assert!(released_in(&mut tx, 7, &ledger).await.is_err());
    tx.rollback().await.unwrap();
    assert_eq!(fresh.effects().await, 2);
    assert_eq!(ledger.len(), 3);
}

#[tokio::test]
async fn ip_07_in_a_transaction_a_final_error_is_kept_if_the_caller_commits() {
    let (fresh, ledger) = (Fresh::new().await, Ledger::default());
    // Rolled back: nobody will know of it.
    let mut tx = fresh.begin().await;
    assert!(final_in(&mut tx, 7, &ledger).await.is_err());
    tx.rollback().await.unwrap();
    for replayed in [false, true] {
        let mut tx = fresh.begin().await;
        let (answer, seen) = observe(final_in(&mut tx, 7, &ledger)).await;
        assert!(matches!(answer, Err(Failure::Declined(_))));
        assert_eq!(seen.replayed(), replayed);
        tx.commit().await.unwrap();
    }
    assert_eq!(ledger.len(), 2);
    assert_eq!(fresh.effects().await, 1);
}

#[tokio::test]
async fn ip_07_a_build_that_records_no_errors_does_not_run_over_a_recorded_one() {
    #[idempotent(key = "{no}", ttl = "1h", store = store, scope = "ip-07", shared_scope, record_err = all)]
    async fn before(store: &MemoryStore, no: u64) -> Result<u8, Failure> {
        Err(declined())
    }
    #[idempotent(key = "{no}", ttl = "1h", store = store, scope = "ip-07", shared_scope)]
    async fn after(store: &MemoryStore, no: u64, body: &Body) -> Result<u8, Failure> {
        body.run().await;
        Ok(1)
    }
    let (store, body) = (MemoryStore::new(), Body::new());
    before(&store, 7).await.unwrap_err();
    let (answer, seen) = observe(after(&store, 7, &body)).await;
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::OutcomeUndecodable);
    assert_eq!(seen.answered(), Some(Answered::Refused));
    assert_eq!(body.runs(), 0);
}

#[idempotent(key = "{no}", ttl = "1h", store = tx)]
async fn pay(tx: &mut SqliteTransaction<'_>, no: u64, body: &Body) -> Result<usize, Failure> {
    write(tx, "pay").await?;
    Ok(body.run().await)
}

#[tokio::test]
async fn ip_01_a_repeat_is_a_repeat_in_this_process_and_in_another() {
    let (fresh, body) = (Fresh::new().await, Body::new());
    let first = committed!(fresh, tx => pay(tx, 1, &body));
    assert_eq!(first.unwrap(), 1);
    for _ in 0..2 {
        let again = committed!(fresh, tx => pay(tx, 1, &body));
        assert_eq!(again.unwrap(), 1);
    }
    let elsewhere = fresh.file.pool(1).await;
    let mut tx = elsewhere.begin_with("BEGIN IMMEDIATE").await.unwrap();
    assert_eq!(pay(&mut tx, 1, &body).await.unwrap(), 1);
    tx.commit().await.unwrap();
    assert_eq!(body.runs(), 1);
    assert_eq!(fresh.effects().await, 1);
}
