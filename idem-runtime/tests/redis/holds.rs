//! `on_crash = "hold"`: what is in doubt stays, and what never ran does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idem_runtime::ErrorKind;
use idem_runtime::key::Scope;
use idem_runtime::operation::Operation;
use idem_runtime::protocol::OnCrash;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::{Held, Reserved, Store};
use idem_test_support::RedisServer;
use idem_test_support::proxy::{Direction, Proxy, Wire};
use redis::AsyncCommands;

use crate::support::{self, call, payload, raw, request_for};

const LEASE: Duration = Duration::from_millis(2_000);

static HOLDING: Operation = Operation::new(Scope::fixed("holding"))
    .retention_millis(60_000)
    .lease_millis(2_000)
    .reject()
    .on_crash_hold();

async fn limited(url: &str) -> RedisStore {
    let builder = RedisStore::builder().namespace(support::namespace());
    let builder = builder.limit(Duration::from_millis(500));
    builder.connect(url).await.unwrap()
}

/// Calls that end before the server answers; none of their bodies runs.
async fn refused_calls(store: &RedisStore, runs: &Arc<AtomicU32>) {
    let calls: Vec<_> = (0..20)
        .map(|n| {
            let (store, runs) = (store.clone(), Arc::clone(runs));
            tokio::spawn(async move {
                let body = || async { Ok(u64::from(runs.fetch_add(1, Ordering::SeqCst))) };
                call(&store, &HOLDING, &format!("{n}"), body).await
            })
        })
        .collect();
    for answer in calls {
        let refused = answer.await.unwrap().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StoreUnavailable);
        assert_eq!(refused.effect(), idem_runtime::Effect::None);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

/// Whatever the stalled requests left, each key runs once its lease has ended.
async fn every_key_runs(store: &RedisStore, runs: &AtomicU32) {
    for n in 0..20 {
        let key = format!("{n}");
        let mut answer;
        let mut tries = 0;
        loop {
            let body = || async { Ok(u64::from(runs.fetch_add(1, Ordering::SeqCst))) };
            answer = call(store, &HOLDING, &key, body).await;
            tries += 1;
            match &answer {
                Err(error)
                    if tries < 100
                        && matches!(
                            error.kind(),
                            ErrorKind::InProgress | ErrorKind::StoreUnavailable
                        ) =>
                {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                _ => break,
            }
        }
        assert!(answer.is_ok(), "{key}: {answer:?}");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_holds_no_key_whose_body_never_ran() {
    let server = RedisServer::start(&[]);
    let store = limited(&server.url()).await;
    let runs = Arc::default();
    server.sigstop();
    refused_calls(&store, &runs).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    server.sigcont();
    every_key_runs(&store, &runs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_holds_packets_holds_no_key_whose_body_never_ran() {
    for direction in [Direction::ToServer, Direction::ToClient] {
        let server = RedisServer::start(&[]);
        let proxy = Proxy::start(("127.0.0.1", server.port()), Wire::Raw);
        let store = limited(&format!("redis://{}", proxy.addr())).await;
        let runs = Arc::default();
        proxy.hold(direction);
        refused_calls(&store, &runs).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        proxy.resume(direction);
        every_key_runs(&store, &runs).await;
    }
}

/// The server stands still between the claim and its confirmation, which it carries out late.
#[tokio::test]
async fn a_confirmation_that_comes_after_the_lease_holds_nothing() {
    let server = RedisServer::start(&[]);
    let store = limited(&server.url()).await;
    let mut raw = raw(&server.url()).await;
    let mut request = request_for(support::id(&store, 1), Duration::from_millis(300));
    request.on_crash = OnCrash::Hold;
    let Reserved::Granted(held) = store.reserve(&request).await.unwrap() else {
        panic!("it was free");
    };
    let key = store.key_of(request.id);
    let ttl: i64 = raw.pttl(&key).await.unwrap();
    assert!(ttl > 0, "a claim has an end");
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(store.renew(&held, LEASE).await.unwrap(), Held::No);
    let again = store
        .reserve(&request_for(request.id, LEASE))
        .await
        .unwrap();
    let Reserved::Granted(again) = again else {
        panic!("{again:?}");
    };
    assert!(again.fence > held.fence);
}

/// A confirmed reservation stays, whatever the next call's policy, and remembers its payload.
#[tokio::test]
async fn a_confirmed_reservation_stays_until_somebody_decides() {
    let server = RedisServer::start(&[]);
    let store = limited(&server.url()).await;
    let mut raw = raw(&server.url()).await;
    let mut request = request_for(support::id(&store, 1), LEASE);
    request.on_crash = OnCrash::Hold;
    let Reserved::Granted(held) = store.reserve(&request).await.unwrap() else {
        panic!("it was free");
    };
    let short = Duration::from_millis(1);
    assert_eq!(store.renew(&held, short).await.unwrap(), Held::Yes);
    let ttl: i64 = raw.pttl(store.key_of(request.id)).await.unwrap();
    assert_eq!(ttl, -1);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let mut next = request_for(request.id, LEASE);
    assert_eq!(store.reserve(&next).await.unwrap(), Reserved::Abandoned);
    next.fingerprint = payload(9);
    assert_eq!(store.reserve(&next).await.unwrap(), Reserved::Mismatch);
    assert!(store.forget(request.id).await.unwrap());
    assert!(matches!(
        store.reserve(&next).await.unwrap(),
        Reserved::Granted(_)
    ));
}
