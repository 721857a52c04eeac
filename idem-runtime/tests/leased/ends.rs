//! However a call ends, its renewal ends with it; what happens to the reservation is the
//! operation's to say.

use idem_runtime::testing::fault::{Fault, Step};

use super::*;

/// The renewals are over, the key is free after the lease, and not before.
async fn held_until_the_lease_ends(store: &TestStore) {
    let renewals = store.count(Step::Renew);
    let answer = quick(store, &REJECTING, 2).await;
    assert_eq!(refused(&answer), ErrorKind::InProgress);
    sleep(LEASE).await;
    assert_eq!(
        store.count(Step::Renew),
        renewals,
        "renewal outlives its owner"
    );
    assert_eq!(quick(store, &REJECTING, 2).await.unwrap(), 2);
    assert_eq!(store.count(Step::Renew), renewals);
}

fn long(
    store: &TestStore,
    operation: &'static Operation,
) -> impl Future<Output = Result<u64, Failure>> + Send + use<> {
    let store = store.clone();
    let body = Runs::default().body(LEASE * 100, 1);
    async move { call(&store, operation, "7", body).await }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_holds_its_reservation() {
    let store = store();
    let cut = tokio::time::timeout(LEASE * 2, long(&store, &REJECTING)).await;
    assert!(cut.is_err());
    held_until_the_lease_ends(&store).await;
}

#[tokio::test(start_paused = true)]
async fn an_aborted_call_holds_its_reservation() {
    let store = store();
    let task = tokio::spawn(long(&store, &REJECTING));
    sleep(LEASE * 2).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    held_until_the_lease_ends(&store).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_body_panicked_holds_its_reservation() {
    let store = store();
    let task = tokio::spawn({
        let store = store.clone();
        async move {
            let body = || async {
                sleep(LEASE * 2).await;
                panic!("on purpose");
            };
            call(&store, &REJECTING, "7", body).await
        }
    });
    assert!(task.await.unwrap_err().is_panic());
    held_until_the_lease_ends(&store).await;
}

/// In real time: the runtime that goes down cannot be the one that watches.
#[test]
fn a_runtime_that_shuts_down_ends_renewal() {
    for operation in [&REJECTING, &RELEASING] {
        let store = Faulty::new(MemoryStore::new());
        let going = tokio::runtime::Runtime::new().unwrap();
        let task = going.spawn(long(&store, operation));
        std::thread::sleep(LEASE * 2);
        going.shutdown_background();
        std::thread::sleep(millis(20));
        let renewals = store.count(Step::Renew);
        assert!(renewals >= 4 && task.is_finished(), "{renewals}");
        std::thread::sleep(LEASE * 3 / 2);
        assert_eq!(store.count(Step::Renew), renewals);
        let staying = tokio::runtime::Runtime::new().unwrap();
        assert_eq!(staying.block_on(quick(&store, operation, 2)).unwrap(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_or_panicked_call_gives_back_where_the_operation_says_so() {
    let store = store();
    assert!(
        tokio::time::timeout(LEASE * 2, long(&store, &RELEASING))
            .await
            .is_err()
    );
    tokio::task::yield_now().await;
    let failing = tokio::spawn({
        let store = store.clone();
        async move { call(&store, &RELEASING, "7", || async { panic!("on purpose") }).await }
    });
    assert!(failing.await.unwrap_err().is_panic());
    tokio::task::yield_now().await;
    assert_eq!(store.count(Step::Release), 2);
    assert_eq!(quick(&store, &RELEASING, 2).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_is_done_is_never_given_back() {
    let store = store();
    store.at(Step::Complete, 1, Fault::HangBefore);
    let cut = tokio::time::timeout(millis(50), quick(&store, &RELEASING, 1)).await;
    assert!(cut.is_err(), "dropped while its outcome was being recorded");
    sleep(millis(1)).await;
    assert_eq!(quick(&store, &RELEASING, 2).await.unwrap(), 1, "recorded");
    assert_eq!(store.count(Step::Release), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_it_gives_back_gives_back_still() {
    let store = store();
    store.at(Step::Release, 1, Fault::HangBefore);
    let failing = call(&store, &REJECTING, "7", || async { Err(Failure::Declined) });
    assert!(tokio::time::timeout(millis(20), failing).await.is_err());
    tokio::task::yield_now().await;
    assert_eq!(quick(&store, &REJECTING, 2).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_hangs_or_fails_does_not_hold_the_answer_up_for_long() {
    for fault in [Fault::HangBefore, Fault::Before, Fault::After] {
        let store = store();
        store.at(Step::Release, 1, fault);
        let failing = call(&store, &REJECTING, "7", || async { Err(Failure::Declined) });
        let answer = tokio::time::timeout(LEASE / 2, failing).await;
        assert!(
            matches!(answer, Ok(Err(Failure::Declined))),
            "{fault:?} {answer:?}"
        );
        tokio::task::yield_now().await;
        assert_eq!(
            quick(&store, &REJECTING, 2).await.unwrap(),
            2,
            "tried once more"
        );
    }
}

/// Nothing has run: a reservation nobody heard of goes back whatever the policy.
#[tokio::test(start_paused = true)]
async fn a_reservation_whose_answer_was_lost_goes_back() {
    let store = store();
    store.at(Step::Reserve, 1, Fault::After);
    let runs = Runs::default();
    let answer = call(&store, &REJECTING, "7", runs.body(LEASE, 1)).await;
    assert_eq!(
        (refused(&answer), runs.count()),
        (ErrorKind::StoreUnavailable, 0)
    );
    tokio::task::yield_now().await;
    assert_eq!(quick(&store, &REJECTING, 2).await.unwrap(), 2);

    let store = self::store();
    store.at(Step::Reserve, 1, Fault::HangAfter);
    let dropped = tokio::time::timeout(millis(20), quick(&store, &REJECTING, 1)).await;
    assert!(dropped.is_err());
    tokio::task::yield_now().await;
    assert_eq!(quick(&store, &REJECTING, 2).await.unwrap(), 2);
}

/// RD-10.
#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_runs_nothing() {
    let (store, runs) = (store(), Runs::default());
    store.always(Step::Reserve, Fault::Delay(Duration::from_secs(5)));
    let report = idem_runtime::testing::replay::run(20, || {
        let (store, body) = (store.clone(), runs.body(LEASE, 1));
        async move { call(&store, &WAITING, "7", body).await }
    })
    .await;
    assert_eq!((report.refused(), runs.count()), (20, 0));
    assert!(
        report
            .answers()
            .all(|answer| refused(answer) == ErrorKind::StoreUnavailable)
    );
}

#[tokio::test(start_paused = true)]
async fn a_reservation_left_behind_is_refused_until_somebody_decides() {
    let store = store();
    let cut = tokio::time::timeout(LEASE * 2, long(&store, &HOLDING)).await;
    assert!(cut.is_err());
    let answer = quick(&store, &HOLDING, 2).await;
    let abandoned = error(answer);
    assert_eq!(
        abandoned.kind(),
        ErrorKind::Abandoned,
        "after waiting for the lease"
    );
    assert_eq!(abandoned.retry(), idem_runtime::Retry::Never);
    assert!(store.forget(abandoned.record_id().unwrap()).await.unwrap());
    assert_eq!(quick(&store, &HOLDING, 3).await.unwrap(), 3);
}
