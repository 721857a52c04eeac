//! The test kit itself: what it accepts, and what it does not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use idem_runtime::__private::{
    Call, Entered, FingerprintBuilder, KeyBuilder, Operation, Run as _, Scope, contract, enter,
    key_part, leave, share,
};
use idem_runtime::Error;
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::key::RecordId;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::{Request, Reserved, Store};
use idem_runtime::testing::fault::{Fault, Faulty, Step};
use idem_runtime::testing::replay::{assert_once, run};

static PAY: Operation = Operation::new(Scope::fixed("pay")).retention_forever();

/// An idempotent function whose body counts itself and answers `answer`.
async fn pay(store: MemoryStore, key: u64, answer: Arc<AtomicU64>) -> Result<u64, Error> {
    fn here() {}
    let mut builder = KeyBuilder::new("");
    key_part(&mut builder, &key);
    let call = Call::prepare(&PAY, &here, &[], builder, FingerprintBuilder::none())?;
    let contract = contract();
    let mut access = share(&store);
    let run = match enter(&mut access, call, &contract).await {
        Entered::Run(run) => run,
        Entered::Answer(answer) => return answer,
    };
    let body = async { Ok(answer.fetch_add(1, Ordering::SeqCst)) };
    let driven = run.driver().drive(body).await;
    leave(&mut access, run, driven, &contract).await
}

#[tokio::test]
async fn one_run_and_equal_answers_pass() {
    let (store, count) = (MemoryStore::new(), Arc::default());
    let report = assert_once(10, || pay(store.clone(), 7, Arc::clone(&count))).await;
    assert_eq!(
        report.to_string(),
        "10 calls: 1 first runs, 9 replays, 0 refused"
    );
}

#[tokio::test]
#[should_panic(expected = "the body was to run 1 times and ran 10 times")]
async fn a_key_of_its_own_for_every_call_does_not_pass() {
    let (store, count, key) = (MemoryStore::new(), Arc::default(), AtomicU64::new(0));
    let next = || {
        pay(
            store.clone(),
            key.fetch_add(1, Ordering::SeqCst),
            Arc::clone(&count),
        )
    };
    let _ = assert_once(10, next).await;
}

#[tokio::test]
#[should_panic(expected = "10 of the calls never got to an idempotent function")]
async fn a_function_that_is_not_idempotent_does_not_pass() {
    let _ = assert_once(10, || async { Ok::<_, Error>(1) }).await;
}

#[tokio::test]
#[should_panic(expected = "two callers got different answers")]
async fn answers_that_differ_do_not_pass() {
    let (store, count) = (MemoryStore::new(), Arc::default());
    let n = AtomicU64::new(0);
    let call = || {
        let (own, paid) = (
            n.fetch_add(1, Ordering::SeqCst),
            pay(store.clone(), 7, Arc::clone(&count)),
        );
        async move { paid.await.map(|_| own) }
    };
    let _ = assert_once(10, call).await;
}

#[tokio::test]
#[should_panic(expected = "on purpose")]
async fn a_panic_of_a_call_comes_through() {
    let panicking = || async { panic!("on purpose") };
    let _ = run::<(), Error, _, _>(2, panicking).await;
}

fn request() -> Request<'static> {
    let id = RecordId::from_bytes([7; 16]);
    Request::new(id, Fingerprint::from_bytes([1; 17]), Duration::from_secs(9))
}

#[tokio::test(start_paused = true)]
async fn a_faulty_store_fails_where_it_is_told_and_remembers() {
    let store = Faulty::new(MemoryStore::new());
    let mine = request();

    store.next(Step::Reserve, Fault::Before);
    assert!(store.reserve(&mine).await.is_err());
    assert!(
        store.lookup(mine.id).await.unwrap().is_none(),
        "the request was lost"
    );

    store.next(Step::Reserve, Fault::After);
    assert!(store.reserve(&mine).await.is_err());
    assert!(
        store.lookup(mine.id).await.unwrap().is_some(),
        "the answer was lost"
    );

    store.next(Step::Reserve, Fault::Delay(Duration::from_secs(3)));
    let begun = tokio::time::Instant::now();
    assert!(matches!(
        store.reserve(&mine).await,
        Ok(Reserved::Granted(_))
    ));
    assert_eq!(begun.elapsed(), Duration::from_secs(3));

    store.always(Step::Reserve, Fault::HangBefore);
    let hanging = tokio::time::timeout(Duration::from_secs(99), store.reserve(&mine)).await;
    assert!(hanging.is_err());
    store.heal();
    assert!(store.reserve(&mine).await.is_ok());

    let faults: Vec<_> = store
        .calls()
        .iter()
        .map(|called| (called.step, called.fault))
        .collect();
    assert_eq!(
        faults,
        [
            (Step::Reserve, Some(Fault::Before)),
            (Step::Lookup, None),
            (Step::Reserve, Some(Fault::After)),
            (Step::Lookup, None),
            (Step::Reserve, Some(Fault::Delay(Duration::from_secs(3)))),
            (Step::Reserve, Some(Fault::HangBefore)),
            (Step::Reserve, None),
        ]
    );
}
