//! Replicas: what a failover forgets, and what waiting for them changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::{Held, Reserved, Store};
use idem_runtime::{Effect, ErrorKind};
use idem_test_support::RedisServer;
use idem_test_support::redis::Reply;

use crate::support::{self, hour, outcome_of, request, take};

/// A master and a replica that follows it.
fn pair() -> (RedisServer, RedisServer) {
    let master = RedisServer::start(&["--repl-diskless-sync-delay", "0"]);
    let port = master.port().to_string();
    let replica = RedisServer::start(&["--replicaof", "127.0.0.1", &port]);
    let follows = |info: &Reply| info.text().contains("state=online");
    master.wait_until(&["INFO", "replication"], follows);
    // A replica that is online gets the stream only after its first acknowledgement.
    master.command(&["SET", "marker", "x"]);
    replica.wait_until(&["GET", "marker"], |marker| {
        matches!(marker, Reply::Bytes(_))
    });
    (master, replica)
}

async fn waiting(url: &str) -> RedisStore {
    let builder = RedisStore::builder().wait_replicas(1, Duration::from_millis(500));
    builder.connect(url).await.unwrap()
}

/// With a healthy replica every step is on it when it is answered.
#[tokio::test]
async fn what_is_acknowledged_is_on_the_replica() {
    let (master, replica) = pair();
    let store = waiting(&master.url()).await;
    for n in 0..10 {
        let held = take(&store, &request(support::id(&store, n))).await;
        let key = store.key_of(held.id);
        assert_eq!(replica.command(&["EXISTS", &key]).number(), 1);
        support::complete(&store, &held, b"done").await;
        assert!(replica.command(&["GET", &key]).text().ends_with("done"));
    }
    master.command(&["SCRIPT", "FLUSH"]);
    let _ = take(&store, &request(support::id(&store, "flushed"))).await;
}

/// With one that does not answer a reservation is given back, and nothing runs.
#[tokio::test]
async fn without_its_replica_a_reservation_is_given_back() {
    let (master, replica) = pair();
    let store = waiting(&master.url()).await;
    let running = take(&store, &request(support::id(&store, "running"))).await;
    replica.sigstop();
    let id = support::id(&store, 1);
    let refused = store.reserve(&request(id)).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.effect()),
        (ErrorKind::StoreUnavailable, Effect::None)
    );
    assert!(store.lookup(id).await.unwrap().is_none());
    let unknown = store
        .complete(&running, b"done"[..].into(), hour())
        .await
        .unwrap_err();
    assert_eq!(
        (unknown.kind(), unknown.effect()),
        (ErrorKind::StoreUnavailable, Effect::Unknown)
    );
    replica.sigcont();
    // It is asked again, and the replica has it when it is acknowledged.
    let again = store.complete(&running, b"done"[..].into(), hour()).await;
    assert_eq!(again.unwrap(), Held::Yes);
    let copy = replica.command(&["GET", &store.key_of(running.id)]).text();
    assert!(copy.ends_with("done"));
    let _ = take(&store, &request(id)).await;
}

/// A failover: the store finds the new master by asking again, and knows what was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_followed() {
    let (mut master, replica) = pair();
    // What a Sentinel would answer.
    let current = Arc::new(AtomicU16::new(master.port()));
    let asked = Arc::clone(&current);
    let store = RedisStore::builder()
        .connect_by(move || {
            let url = format!("redis://127.0.0.1:{}", asked.load(Ordering::SeqCst));
            async move {
                let client = redis::Client::open(url)?;
                client.get_multiplexed_async_connection().await
            }
        })
        .await
        .unwrap();
    let running = take(&store, &request(support::id(&store, "running"))).await;
    let done = take(&store, &request(support::id(&store, "done"))).await;
    support::complete(&store, &done, b"done").await;
    let key = store.key_of(done.id);
    let arrived = |value: &Reply| value.text().ends_with("done");
    replica.wait_until(&["GET", &key], arrived);

    master.kill9();
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    current.store(replica.port(), Ordering::SeqCst);
    assert_eq!(
        outcome_of(&store.reserve(&request(done.id)).await.unwrap()),
        b"done"
    );
    let other = store.reserve(&request(running.id)).await.unwrap();
    assert!(matches!(other, Reserved::InProgress { .. }), "{other:?}");
    support::complete(&store, &running, b"after").await;

    // The server is up and has become a replica: its refusal is enough to ask for the new master.
    master.restart();
    replica.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    current.store(master.port(), Ordering::SeqCst);
    let _ = take(&store, &request(support::id(&store, "new"))).await;
}

/// Without waiting, a failover that the replica did not see coming makes two owners. This is the
/// limit that the documentation names.
#[tokio::test]
async fn an_unacknowledged_reservation_is_lost_in_a_failover() {
    let (mut master, replica) = pair();
    let store = support::store_on(&master.url()).await;
    replica.sigstop();
    let id = support::id(&store, 1);
    let first = take(&store, &request(id)).await;
    master.kill9();
    replica.sigcont();
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    let promoted = support::store_on(&replica.url()).await;
    if let Reserved::Granted(second) = promoted.reserve(&request(id)).await.unwrap() {
        assert!(
            second.fence > first.fence,
            "the clocks agree, so the second is the higher"
        );
    }
}
