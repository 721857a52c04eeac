//! Recording the outcome, when the store does not help.

use idem_runtime::Effect;
use idem_runtime::protocol::State;
use idem_runtime::testing::fault::{Fault, Step};
use tokio::time::Instant;

use super::*;

/// IP-16 (b).
#[tokio::test(start_paused = true)]
async fn an_outcome_that_cannot_be_recorded_comes_back_in_the_error() {
    for fault in [Fault::Before, Fault::HangBefore] {
        let (store, runs) = (store(), Runs::default());
        store.always(Step::Complete, fault);
        let begun = Instant::now();
        let lost = error(call(&store, &REJECTING, "7", runs.body(LEASE, 41)).await);
        assert_eq!(
            (lost.kind(), lost.effect()),
            (ErrorKind::EffectDoneNotRecorded, Effect::Done)
        );
        assert_eq!(lost.unrecorded::<u64>(), Some(41));
        assert!(store.count(Step::Complete) >= 3, "tried within reason");
        assert!(begun.elapsed() < LEASE * 3, "{:?}", begun.elapsed());
        store.heal();
        assert_eq!(store.count(Step::Release), 0);
        let answer = call(&store, &REJECTING, "7", runs.body(LEASE, 42)).await;
        assert_eq!(refused(&answer), ErrorKind::InProgress, "not given back");
        // It has been recorded in the background by now.
        sleep(LEASE * 2).await;
        assert_eq!(quick(&store, &REJECTING, 43).await.unwrap(), 41);
        assert_eq!(runs.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_recorded_at_the_second_try() {
    for fault in [Fault::Before, Fault::HangBefore] {
        let store = store();
        store.at(Step::Complete, 1, fault);
        assert_eq!(quick(&store, &REJECTING, 1).await.unwrap(), 1);
        assert_eq!(quick(&store, &REJECTING, 2).await.unwrap(), 1);
        assert_eq!(store.count(Step::Complete), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_completion_whose_answer_was_lost_is_known_as_ones_own() {
    for fault in [Fault::After, Fault::HangAfter] {
        let store = store();
        store.at(Step::Complete, 1, fault);
        store.at(Step::Lookup, 1, Fault::Before);
        assert_eq!(quick(&store, &REJECTING, 1).await.unwrap(), 1);
        assert_eq!(quick(&store, &REJECTING, 2).await.unwrap(), 1);
    }
}

/// While the outcome is being written down, the lease goes on being renewed.
#[tokio::test(start_paused = true)]
async fn nobody_else_begins_while_an_outcome_is_being_recorded() {
    static SLOW: Operation = operation("waiting").reject().lease_millis(3_000);
    let (store, runs) = (store(), Runs::default());
    for nth in 1..=3 {
        store.at(Step::Complete, nth, Fault::HangBefore);
    }
    store.at(Step::Complete, 4, Fault::Before);
    let task = tokio::spawn({
        let (store, body) = (store.clone(), runs.body(millis(990), 1));
        async move { call(&store, &SLOW, "7", body).await }
    });
    sleep(millis(3_900)).await;
    let answer = call(&store, &SLOW, "7", runs.body(LEASE, 2)).await;
    assert_eq!(refused(&answer), ErrorKind::InProgress);
    let _ = task.await.unwrap();
    assert_eq!(runs.count(), 1);
}

/// IP-07: by default an error is given back; what is said to be final is recorded and replayed.
#[tokio::test(start_paused = true)]
async fn errors_are_given_back_or_recorded_as_the_operation_says() {
    let store = store();
    let runs = Runs::default();
    let failing = || {
        let runs = runs.clone();
        || async move {
            runs.0.fetch_add(1, Ordering::SeqCst);
            Err(Failure::Declined)
        }
    };
    for n in 1..=2 {
        let answer = call(&store, &REJECTING, "7", failing()).await;
        assert!(matches!(answer, Err(Failure::Declined)));
        assert_eq!(runs.count(), n);
    }
    let contract = contract().recording_all();
    for replayed in [false, true] {
        let prepared = prepare(&REJECTING, "8").unwrap();
        let call = run(&store, prepared, &contract, failing());
        let (answer, seen) = idem_runtime::observe(call).await;
        assert!(matches!(answer, Err(Failure::Declined)));
        assert_eq!((runs.count(), seen.replayed()), (3, replayed));
    }
}

/// IP-10.
#[tokio::test(start_paused = true)]
async fn a_final_error_after_an_overrun_lease_is_kept_for_its_whole_retention() {
    static SHORT: Operation = operation("waiting")
        .reject()
        .retention_millis(1_000)
        .on_lost_lease_continue();
    let store = store();
    store.always(Step::Renew, Fault::Before);
    let contract = contract().recording_all();
    let body = || async {
        sleep(LEASE * 4).await;
        Err(Failure::Declined)
    };
    let answer = run(&store, prepare(&SHORT, "7").unwrap(), &contract, body).await;
    assert!(matches!(answer, Err(Failure::Declined)));
    assert_eq!(store.purge(usize::MAX).await.unwrap(), 0);
    sleep(millis(990)).await;
    let again = run(&store, prepare(&SHORT, "7").unwrap(), &contract, || async {
        Ok(1)
    });
    let (answer, seen) = idem_runtime::observe(again).await;
    assert!(matches!(answer, Err(Failure::Declined)) && seen.replayed());
}

#[tokio::test(start_paused = true)]
async fn the_record_shows_who_holds_it() {
    let store = store();
    let task = tokio::spawn({
        let (store, body) = (store.clone(), Runs::default().body(LEASE, 1));
        async move { call(&store, &REJECTING, "7", body).await }
    });
    sleep(millis(20)).await;
    let id = prepare(&REJECTING, "7").unwrap().id();
    let stored = store.lookup(id).await.unwrap().expect("a record");
    assert!(matches!(
        stored.record.state,
        State::Reserved {
            lease_until: Some(_),
            ..
        }
    ));
    assert_eq!(
        (stored.scope.as_str(), stored.key_text.as_deref()),
        ("waiting", Some("order:7"))
    );
    task.await.unwrap().unwrap();
}
