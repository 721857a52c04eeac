//! `on_crash = "hold"` over a store that loses requests and answers: a body that never ran is never in
//! doubt.

use idem_runtime::Effect;
use idem_runtime::store::Store as _;
use idem_runtime::testing::fault::{Fault, Step};

use super::*;

static HELD: Operation = operation("held").reject().on_crash_hold();

/// Refused before its body, the call leaves nothing that blocks its key for longer than a lease.
async fn runs_afterwards(store: &TestStore, runs: &Runs) {
    store.heal();
    sleep(LEASE * 2).await;
    let answer = call(store, &HELD, "7", runs.body(millis(1), 1)).await;
    assert_eq!((answer.unwrap(), runs.count()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_is_lost_holds_nothing() {
    for fault in [Fault::After, Fault::HangAfter] {
        let (store, runs) = (store(), Runs::default());
        store.next(Step::Reserve, fault);
        // Giving it back does not work either.
        store.always(Step::Lookup, Fault::Before);
        let refusal = call(&store, &HELD, "7", runs.body(millis(1), 1)).await;
        assert_eq!(refused(&refusal), ErrorKind::StoreUnavailable);
        runs_afterwards(&store, &runs).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_that_fails_runs_nothing_and_is_given_back() {
    for fault in [
        Fault::Before,
        Fault::After,
        Fault::HangBefore,
        Fault::HangAfter,
    ] {
        let (store, runs) = (store(), Runs::default());
        store.next(Step::Renew, fault);
        store.next(Step::Release, Fault::Before);
        let refusal = error(call(&store, &HELD, "7", runs.body(millis(1), 1)).await);
        assert_eq!(
            (refusal.kind(), refusal.effect(), runs.count()),
            (ErrorKind::StoreUnavailable, Effect::None, 0),
            "{fault:?}"
        );
        sleep(LEASE * 2).await;
        let id = prepare(&HELD, "7").unwrap().id();
        assert!(store.lookup(id).await.unwrap().is_none(), "{fault:?}");
        runs_afterwards(&store, &runs).await;
    }
}

/// A body that began is in doubt when its call ends midway.
#[tokio::test(start_paused = true)]
async fn a_body_that_began_is_held_and_other_payloads_are_refused() {
    let (store, runs) = (store(), Runs::default());
    let midway = tokio::spawn({
        let (store, body) = (store.clone(), runs.body(LEASE * 10, 1));
        async move { call(&store, &HELD, "7", body).await }
    });
    sleep(millis(20)).await;
    midway.abort();
    sleep(LEASE * 2).await;
    let answer = call(&store, &HELD, "7", runs.body(millis(1), 2)).await;
    assert_eq!(refused(&answer), ErrorKind::Abandoned);
    // An operation under the same name that would run again does not take over what is held.
    static RERUNNING: Operation = operation("held").reject();
    let answer = call(&store, &RERUNNING, "7", runs.body(millis(1), 2)).await;
    assert_eq!(refused(&answer), ErrorKind::Abandoned);
}

/// The default costs no step more.
#[tokio::test(start_paused = true)]
async fn a_call_that_would_rerun_confirms_nothing() {
    let (store, runs) = (store(), Runs::default());
    let answer = call(&store, &REJECTING, "7", runs.body(millis(1), 1)).await;
    assert_eq!(answer.unwrap(), 1);
    assert_eq!(store.count(Step::Renew), 0);
    let answer = call(&store, &HELD, "8", runs.body(millis(1), 1)).await;
    assert_eq!(answer.unwrap(), 1);
    assert_eq!(store.count(Step::Renew), 1);
}
