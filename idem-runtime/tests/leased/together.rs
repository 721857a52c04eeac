//! Many equal calls at once, in real time and on several threads.

use idem_runtime::testing::replay::{self, assert_once};

use super::*;

static PATIENT: Operation = Operation::new(Scope::fixed("patient"))
    .retention_millis(DAY)
    .wait_millis(30_000);
static REFUSING: Operation = Operation::new(Scope::fixed("patient"))
    .retention_millis(DAY)
    .reject();

/// IP-11.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_calls_run_once() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let report = assert_once(50, || {
        let (store, body) = (store.clone(), runs.body(millis(200), 1));
        async move { call(&store, &PATIENT, "7", body).await }
    })
    .await;
    assert_eq!((report.replays(), runs.count()), (49, 1));
}

/// IP-11, refusing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_calls_that_refuse_run_once() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let report = replay::run(50, || {
        let (store, body) = (store.clone(), runs.body(millis(200), 1));
        async move { call(&store, &REFUSING, "7", body).await }
    })
    .await;
    report.assert_runs(1);
    assert_eq!((report.refused(), runs.count()), (49, 1));
    let refusals = report.answers().filter(|answer| answer.is_err());
    assert!(
        refusals
            .map(refused)
            .all(|kind| kind == ErrorKind::InProgress)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_calls_run_once() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let report = assert_once(1_000, || {
        let (store, body) = (store.clone(), runs.body(millis(50), 1));
        async move { call(&store, &PATIENT, "7", body).await }
    })
    .await;
    assert_eq!((report.replays(), runs.count()), (999, 1));
}

/// A first call that fails hands over to exactly one of those that wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_after_the_other_until_one_succeeds() {
    let (store, runs, live) = (
        MemoryStore::new(),
        Runs::default(),
        Arc::new(AtomicUsize::new(0)),
    );
    let report = replay::run(40, || {
        let (store, runs, live) = (store.clone(), runs.clone(), Arc::clone(&live));
        async move {
            let body = || async {
                assert_eq!(
                    live.fetch_add(1, Ordering::SeqCst),
                    0,
                    "two bodies at a time"
                );
                sleep(millis(5)).await;
                live.fetch_sub(1, Ordering::SeqCst);
                match runs.0.fetch_add(1, Ordering::SeqCst) {
                    0..4 => Err(Failure::Declined),
                    n => Ok(n as u64),
                }
            };
            call(&store, &PATIENT, "7", body).await
        }
    })
    .await;
    report.assert_runs(5);
    assert_eq!((report.replays(), runs.count()), (35, 5));
}

/// The count of a full store stays exact, whatever happens at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_bounded_store_counts_exactly() {
    const CAPACITY: usize = 40;
    static SHORT: Operation = Operation::new(Scope::fixed("short"))
        .retention_millis(3)
        .reject();
    let store = MemoryStore::builder().capacity(CAPACITY).build();
    let tasks: Vec<_> = (0..8u64)
        .map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut full = 0;
                for n in 0..400u64 {
                    let key = ((task * 7 + n * 13) % 90).to_string();
                    let body = || async move {
                        if n % 5 == 0 {
                            Err(Failure::Declined)
                        } else {
                            Ok(n)
                        }
                    };
                    let answer = call(&store, &SHORT, &key, body).await;
                    let kind = answer.err().and_then(|failure| failure.kind());
                    match kind {
                        None | Some(ErrorKind::InProgress) => {}
                        Some(ErrorKind::StoreExhausted) => full += 1,
                        other => panic!("{other:?}"),
                    }
                    if n % 50 == 0 {
                        let _ = store.purge(7).await;
                        sleep(millis(4)).await;
                    }
                }
                full
            })
        })
        .collect();
    let mut full = 0;
    for task in tasks {
        full += task.await.unwrap();
    }
    assert!(store.len() <= CAPACITY, "{} of {CAPACITY}", store.len());
    assert!(full > 0, "the store was never full");
    sleep(millis(10)).await;
    let left = store.len();
    assert_eq!(store.purge(usize::MAX).await.unwrap(), left);
    assert!(store.is_empty(), "{}", store.len());
}

/// RD-09: nothing is left of what is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_left_of_what_is_over() {
    static SHORT: Operation = Operation::new(Scope::fixed("short")).retention_millis(1);
    let store = MemoryStore::new();
    for n in 0..2_000u64 {
        call(&store, &SHORT, &n.to_string(), || async { Ok(n) })
            .await
            .unwrap();
    }
    sleep(millis(5)).await;
    store.purge(usize::MAX).await.unwrap();
    assert!(store.is_empty());
}
