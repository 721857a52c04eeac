//! A server that is full, and one that evicts.

use std::time::Duration;

use idem_runtime::key::Scope;
use idem_runtime::operation::Operation;
use idem_runtime::retention::Retention;
use idem_runtime::store::{Held, Reserved, Store};
use idem_runtime::{Effect, ErrorKind};
use idem_test_support::RedisServer;

use crate::support::{self, call, hour, outcome_of, request, take};

static PAY: Operation = Operation::new(Scope::fixed("pay")).retention_millis(60_000);

/// Fills the server and sets its limit below what it holds.
fn fill(server: &RedisServer) {
    let filler = "x".repeat(1_000_000);
    for n in 0..4 {
        server.command(&["SET", &format!("filler:{n}"), &filler]);
    }
    server.command(&["CONFIG", "SET", "maxmemory", "3mb"]);
}

/// A full server refuses new calls, still records what runs, and still answers what is recorded.
#[tokio::test]
async fn a_full_server_refuses_new_calls_and_records_running_ones() {
    let server = RedisServer::start(&[]);
    let store = support::store_on(&server.url()).await;
    let kept = take(&store, &request(support::id(&store, "kept"))).await;
    support::complete(&store, &kept, b"kept").await;
    let buried = take(&store, &request(support::id(&store, "buried"))).await;
    let short = Retention::new(Duration::from_millis(1)).unwrap();
    let done = store.complete(
        &buried,
        b"paid".as_slice().into(),
        short.with_tombstone_forever(),
    );
    assert_eq!(done.await.unwrap(), Held::Yes);
    let running = take(&store, &request(support::id(&store, "running"))).await;
    let failing = take(&store, &request(support::id(&store, "failing"))).await;
    fill(&server);

    let refused = store
        .reserve(&request(support::id(&store, "new")))
        .await
        .unwrap_err();
    assert_eq!(
        (refused.kind(), refused.effect()),
        (ErrorKind::StoreExhausted, Effect::None)
    );
    assert!(refused.to_string().contains("full"), "{refused}");
    assert!(
        store
            .lookup(support::id(&store, "new"))
            .await
            .unwrap()
            .is_none()
    );
    for _ in 0..40 {
        assert_eq!(
            outcome_of(&store.reserve(&request(kept.id)).await.unwrap()),
            b"kept"
        );
        let gone = store.reserve(&request(buried.id)).await.unwrap();
        assert_eq!(gone, Reserved::OutcomeGone);
    }
    assert_eq!(
        store.renew(&running, support::LEASE).await.unwrap(),
        Held::Yes
    );
    let large = vec![7; 1_000_000];
    let done = store.complete(&running, large.clone().into(), hour()).await;
    assert_eq!(done.unwrap(), Held::Yes);
    assert_eq!(
        outcome_of(&store.reserve(&request(running.id)).await.unwrap()),
        large
    );
    assert_eq!(store.release(&failing).await.unwrap(), Held::Yes);
    assert!(store.forget(kept.id).await.unwrap());
}

/// The server fills up while the body runs: its outcome is recorded all the same.
#[tokio::test]
async fn a_server_that_fills_up_during_the_body_loses_no_outcome() {
    let server = RedisServer::start(&[]);
    let store = support::store_on(&server.url()).await;
    let body = || async {
        fill(&server);
        Ok(7)
    };
    assert_eq!(call(&store, &PAY, "a", body).await.unwrap(), 7);
    let again = call(&store, &PAY, "a", || async { panic!("it runs once") }).await;
    assert_eq!(again.unwrap(), 7);
    let new = call(&store, &PAY, "b", || async { panic!("there is no room") }).await;
    assert_eq!(new.unwrap_err().kind(), ErrorKind::StoreExhausted);
}

/// Where records are evicted calls run twice: this is what `check` refuses, not what is supported.
#[tokio::test]
async fn an_evicted_record_is_a_call_that_runs_twice() {
    let server = RedisServer::start(&["--maxmemory-policy", "volatile-lru"]);
    let store = support::store_on(&server.url()).await;
    assert_eq!(store.check().await.unwrap_err().kind(), ErrorKind::Schema);
    let held = take(&store, &request(support::id(&store, 1))).await;
    fill(&server);
    assert!(store.lookup(held.id).await.unwrap().is_none());
    assert_eq!(
        store.complete(&held, b""[..].into(), hour()).await.unwrap(),
        Held::No
    );
    server.command(&["FLUSHALL"]);
    tokio::time::sleep(Duration::from_millis(2)).await;
    let second = store.reserve(&request(held.id)).await.unwrap();
    let Reserved::Granted(second) = second else {
        panic!("{second:?}");
    };
    assert!(second.fence > held.fence);
}
