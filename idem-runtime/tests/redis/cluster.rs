//! A cluster whose slots move and whose nodes fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use idem_runtime::ErrorKind;
use idem_runtime::key::Scope;
use idem_runtime::operation::Operation;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::{Held, Store};
use idem_test_support::RedisCluster;

use crate::support::{self, call, outcome_of, request, take};

static PAY: Operation = Operation::new(Scope::fixed("pay")).retention_millis(60_000);

async fn on(cluster: &RedisCluster) -> RedisStore {
    let connection = support::cluster_connection(cluster).await;
    RedisStore::builder().build(connection).unwrap()
}

/// RD-08: records spread over the nodes, and text with braces neither merges nor parts them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn braces_in_a_key_mean_nothing() {
    let cluster = RedisCluster::start(3);
    let store = on(&cluster).await;
    let keys = [
        "{a}:1", "{a}:2", "a}{b", "{", "}", "{}", "{}{}", "a", "{a}", "{{a}}",
    ];
    for repeat in 0..2 {
        for (n, key) in (0..).zip(keys) {
            let body = || async {
                assert_eq!(repeat, 0);
                Ok(n)
            };
            assert_eq!(call(&store, &PAY, key, body).await.unwrap(), n, "{key}");
        }
    }
    for n in 0..60 {
        let held = take(&store, &request(support::id(&store, n))).await;
        support::complete(&store, &held, b"").await;
    }
    for node in cluster.nodes() {
        assert!(node.command(&["DBSIZE"]).number() > 0);
    }
}

/// Every step finds its record while its slot moves to another node and back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_on_while_slots_move() {
    let cluster = Arc::new(RedisCluster::start(3));
    let store = on(&cluster).await;
    let id = support::id(&store, "moving");
    let slot = cluster.slot_of(&store.key_of(id));
    let done = Arc::new(AtomicBool::new(false));
    let (lives, effects) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (store, done) = (store.clone(), Arc::clone(&done));
            let (lives, effects) = (Arc::clone(&lives), Arc::clone(&effects));
            tokio::spawn(async move {
                while !done.load(Ordering::SeqCst) {
                    let Ok(reserved) = store.reserve(&request(id)).await else {
                        continue;
                    };
                    if let idem_runtime::store::Reserved::Granted(held) = reserved {
                        // Alone in here, wherever the record is.
                        assert_eq!(effects.fetch_add(1, Ordering::SeqCst), 0);
                        assert_eq!(store.renew(&held, support::LEASE).await.unwrap(), Held::Yes);
                        effects.fetch_sub(1, Ordering::SeqCst);
                        lives.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(store.release(&held).await.unwrap(), Held::Yes);
                    }
                }
            })
        })
        .collect();
    let moving = Arc::clone(&cluster);
    let moved = tokio::task::spawn_blocking(move || {
        for _ in 0..12 {
            let from = moving.owner_of(slot);
            moving.migrate_slot(slot, from, (from + 1) % 3);
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    moved.await.unwrap();
    done.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    let lives = lives.load(Ordering::SeqCst);
    assert!(lives > 50, "{lives}");
}

/// A node that does not know a script is sent it.
#[tokio::test]
async fn each_node_learns_the_scripts() {
    let cluster = RedisCluster::start(3);
    let store = on(&cluster).await;
    for n in 0..30 {
        if n % 10 == 5 {
            cluster
                .nodes()
                .iter()
                .for_each(|node| drop(node.command(&["SCRIPT", "FLUSH"])));
        }
        let held = take(&store, &request(support::id(&store, n))).await;
        support::complete(&store, &held, b"x").await;
        let replay = store.reserve(&request(held.id)).await.unwrap();
        assert_eq!(outcome_of(&replay), b"x");
        assert!(store.forget(held.id).await.unwrap());
    }
}

/// A node dies for good: its records are refused, not run; the others' may go on or not, by the
/// cluster's own setting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_node_runs_nothing() {
    let mut cluster = RedisCluster::start(3);
    let store = on(&cluster).await;
    let id = support::id(&store, "lost");
    let held = take(&store, &request(id)).await;
    support::complete(&store, &held, b"x").await;
    let owner = cluster.owner_of(cluster.slot_of(&store.key_of(id)));
    cluster.nodes_mut()[owner].kill9();
    for _ in 0..3 {
        let error = store.reserve(&request(id)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{error}");
    }
}

/// The check asks every master.
#[tokio::test]
async fn one_node_that_evicts_is_enough_to_be_refused() {
    let cluster = RedisCluster::start(3);
    let store = on(&cluster).await;
    assert_eq!(store.check().await.unwrap().warnings.len(), 3);
    cluster.nodes()[1].command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let refused = store.check().await.unwrap_err();
    let port = cluster.nodes()[1].port().to_string();
    assert!(refused.to_string().contains(&port), "{refused}");
}

/// Waiting for replicas asks the node that has the record.
#[tokio::test]
async fn replicas_of_the_records_node_are_waited_for() {
    let cluster = RedisCluster::start(3);
    let connection = support::cluster_connection(&cluster).await;
    let none = RedisStore::builder().wait_replicas(0, Duration::from_millis(50));
    let none = none.build(connection.clone()).unwrap();
    let one = RedisStore::builder().wait_replicas(1, Duration::from_millis(50));
    let one = one.build(connection).unwrap();
    for n in 0..6 {
        let held = take(&none, &request(support::id(&none, n))).await;
        support::complete(&none, &held, b"x").await;
        let refused = one
            .reserve(&request(support::id(&one, n + 100)))
            .await
            .unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StoreUnavailable);
    }
}
