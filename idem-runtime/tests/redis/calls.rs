//! Whole calls: the engine over the store.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_runtime::key::{RecordId, Scope};
use idem_runtime::operation::Operation;
use idem_runtime::store::{Reserved, Store};
use idem_runtime::{Error, ErrorKind};
use idem_test_support::RedisServer;

use crate::support::{self, call, request};

const fn operation(name: &'static str) -> Operation {
    Operation::new(Scope::fixed(name)).retention_millis(60_000)
}

static PAY: Operation = operation("pay");
static REFUND: Operation = operation("refund");
static SHORT: Operation = operation("short").lease_millis(300).reject();

/// F5: a thousand equal calls at once: one runs, all get its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_thousand_equal_calls_one_runs() {
    let store = support::store().await;
    let runs = Arc::new(AtomicU32::new(0));
    let calls: Vec<_> = (0..1000)
        .map(|_| {
            let (store, runs) = (store.clone(), Arc::clone(&runs));
            tokio::spawn(async move {
                let body = || async {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    Ok(u64::from(runs.fetch_add(1, Ordering::SeqCst)) + 41)
                };
                call(&store, &PAY, "order:7", body).await
            })
        })
        .collect();
    for answer in calls {
        assert_eq!(answer.await.unwrap().unwrap(), 41);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// RD-12: one store under two functions, built twice and cloned: each function runs once.
#[tokio::test]
async fn a_key_is_a_function_of_namespace_operation_and_arguments() {
    let namespace = support::namespace();
    let builder = idem_runtime::store::redis::RedisStore::builder().namespace(namespace);
    let url = idem_test_support::Redis::url();
    let first = builder.clone().connect(url.as_str()).await.unwrap();
    let second = builder.connect(url.as_str()).await.unwrap();
    let runs = AtomicU32::new(0);
    for store in [&first, &second, &first.clone(), &second.clone(), &first] {
        for operation in [&PAY, &REFUND] {
            let body = || async { Ok(u64::from(runs.fetch_add(1, Ordering::SeqCst))) };
            let answer = call(store, operation, "x", body).await.unwrap();
            assert_eq!(answer, u64::from(std::ptr::eq(operation, &REFUND)));
        }
    }
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

/// IP-08: a call that is merely slow keeps its key: the lease is renewed while the body runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_call_is_not_taken_over() {
    static RENEWED: Operation = operation("renewed").lease_millis(900).reject();
    let store = support::store().await;
    let slow = tokio::spawn({
        let store = store.clone();
        async move {
            let body = || async {
                tokio::time::sleep(Duration::from_millis(2700)).await;
                Ok(1)
            };
            call(&store, &RENEWED, "slow", body).await
        }
    });
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let second = call(&store, &RENEWED, "slow", || async {
            panic!("it is running")
        })
        .await;
        assert_eq!(second.unwrap_err().kind(), ErrorKind::InProgress);
    }
    assert_eq!(slow.await.unwrap().unwrap(), 1);
}

/// LK-04: however a call ends midway, its lease is no longer renewed and ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewal_ends_with_its_call() {
    let store = support::store().await;
    for (key, panics) in [("panics", true), ("aborted", false)] {
        let running = tokio::spawn({
            let store = store.clone();
            async move {
                let body = || async {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    assert!(!panics, "the body panics");
                    std::future::pending::<Result<u64, Error>>().await
                };
                call(&store, &SHORT, key, body).await
            }
        });
        tokio::time::sleep(Duration::from_millis(600)).await;
        running.abort();
        assert!(running.await.is_err());
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert_eq!(
            call(&store, &SHORT, key, || async { Ok(2) }).await.unwrap(),
            2
        );
    }
}

/// LK-11: a wake-up is a hint: who waits does not come in while the successor of a late owner runs.
#[tokio::test]
async fn a_stale_release_lets_nobody_in() {
    let store = support::store().await;
    let id = support::id(&store, 1);
    let lease = Duration::from_millis(100);
    let a = support::take(&store, &support::request_for(id, lease)).await;
    tokio::time::sleep(lease * 2).await;
    let _b = support::take(&store, &request(id)).await;
    let woken = store.changed(id);
    let _ = store.release(&a).await.unwrap();
    let heard = tokio::time::timeout(Duration::from_millis(100), woken).await;
    assert!(
        heard.is_err(),
        "a release that changed nothing announces nothing"
    );
    let c = store.reserve(&request(id)).await.unwrap();
    assert!(matches!(c, Reserved::InProgress { .. }), "{c:?}");
}

/// IP-07: by default an error releases the key, and the next call runs at once.
#[tokio::test]
async fn an_error_frees_the_key() {
    let store = support::store().await;
    let failed = call(&store, &SHORT, "a", || async {
        Err(Error::new(ErrorKind::Reentrant))
    })
    .await;
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Reentrant);
    assert_eq!(
        call(&store, &SHORT, "a", || async { Ok(3) }).await.unwrap(),
        3
    );
}

/// LK-10: what is running, for whom and until when, can be seen.
#[tokio::test]
async fn a_running_call_can_be_looked_up() {
    let store = support::store().await;
    let id = RecordId::new(store.namespace(), "pay", &[], "seen");
    let body = || async {
        let shown = store.lookup(id).await?.unwrap();
        assert_eq!(
            (shown.scope.as_str(), shown.key_text.as_deref()),
            ("pay", Some("seen"))
        );
        assert_eq!(Some(shown.record.fence), idem_runtime::engine::fence());
        Ok(1)
    };
    assert_eq!(call(&store, &PAY, "seen", body).await.unwrap(), 1);
}

/// RD-02: the server goes away and comes back during the body: the outcome is recorded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_during_the_body_loses_nothing() {
    let server = RedisServer::start(&["--appendonly", "yes"]);
    let store = support::store_on(&server.url()).await;
    let server = Mutex::new(server);
    let body = || async {
        server.lock().unwrap().kill9();
        server.lock().unwrap().restart();
        Ok(5)
    };
    assert_eq!(call(&store, &PAY, "a", body).await.unwrap(), 5);
    let again = call(&store, &PAY, "a", || async { panic!("it ran") }).await;
    assert_eq!(again.unwrap(), 5);
}

/// IP-16: the effect is done and the store is gone: the error says so and carries the value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_effect_that_cannot_be_recorded_is_not_a_failure() {
    let server = RedisServer::start(&["--appendonly", "yes"]);
    let store = support::store_on(&server.url()).await;
    let server = Mutex::new(server);
    let body = || async {
        server.lock().unwrap().kill9();
        Ok(5)
    };
    let error = call(&store, &SHORT, "a", body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::EffectDoneNotRecorded);
    assert_eq!(error.unrecorded::<u64>(), Some(5));
    server.lock().unwrap().restart();
    assert_eq!(
        call(&store, &PAY, "b", || async { Ok(6) }).await.unwrap(),
        6
    );
}
