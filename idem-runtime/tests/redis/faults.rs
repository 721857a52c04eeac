//! Servers that go away, stand still or never answer; connections that are cut anywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use idem_runtime::key::Scope;
use idem_runtime::operation::Operation;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::{Reserved, Store};
use idem_runtime::{Effect, ErrorKind};
use idem_test_support::RedisServer;
use idem_test_support::proxy::{Count, Direction, Proxy, Wire};

use crate::support::{self, call, request, take};

static PAY: Operation = Operation::new(Scope::fixed("pay")).retention_millis(60_000);

const LIMIT: Duration = Duration::from_millis(400);

async fn limited(url: &str) -> RedisStore {
    RedisStore::builder()
        .limit(LIMIT)
        .connect(url)
        .await
        .unwrap()
}

/// RD-02: the next call after a restart works, on every kind of connection that connects again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_call_after_a_restart_works() {
    let mut server = RedisServer::start(&["--appendonly", "yes"]);
    let own = support::store_on(&server.url()).await;
    let client = redis::Client::open(server.url()).unwrap();
    let manager = client.get_connection_manager().await.unwrap();
    let managed = RedisStore::builder().build(manager).unwrap();
    for (n, store) in [own, managed].into_iter().enumerate() {
        let before = take(&store, &request(support::id(&store, n))).await;
        for _ in 0..3 {
            server.kill9();
            let down = store
                .reserve(&request(support::id(&store, "down")))
                .await
                .unwrap_err();
            assert_eq!(
                (down.kind(), down.effect()),
                (ErrorKind::StoreUnavailable, Effect::None)
            );
            let down = store.renew(&before, support::LEASE).await.unwrap_err();
            assert_eq!(
                (down.kind(), down.effect()),
                (ErrorKind::StoreUnavailable, Effect::Unknown)
            );
            server.restart();
            // The other connection dials with pauses of its own.
            let begun = Instant::now();
            while n == 1 && store.lookup(before.id).await.is_err() {
                assert!(begun.elapsed() < Duration::from_secs(10));
            }
            let answer = store.reserve(&request(before.id)).await.unwrap();
            assert!(matches!(answer, Reserved::InProgress { .. }), "{answer:?}");
        }
        // Restarted between two calls, with nobody noticing.
        server.kill9();
        server.restart();
        if n == 0 {
            support::complete(&store, &before, b"done").await;
        }
    }
}

/// RD-10: twenty equal calls of a server that stands still: none runs, all end in time, and the
/// store works as soon as the server does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_runs_nothing() {
    let server = RedisServer::start(&[]);
    let store = limited(&server.url()).await;
    server.sigstop();
    let begun = Instant::now();
    let runs = Arc::new(AtomicU32::new(0));
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let (store, runs) = (store.clone(), Arc::clone(&runs));
            tokio::spawn(async move {
                let body = || async {
                    runs.fetch_add(1, Ordering::SeqCst);
                    Ok(1)
                };
                call(&store, &PAY, "a", body).await
            })
        })
        .collect();
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert_eq!(
            (error.kind(), error.effect()),
            (ErrorKind::StoreUnavailable, Effect::None)
        );
    }
    assert!(begun.elapsed() < LIMIT * 3, "{:?}", begun.elapsed());
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    server.sigcont();
    assert_eq!(
        call(&store, &PAY, "b", || async { Ok(2) }).await.unwrap(),
        2
    );
}

/// RD-02: a server that accepts and never answers, at the first connection and later.
#[tokio::test]
async fn a_server_that_never_answers_ends_in_time() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let begun = Instant::now();
    let error = RedisStore::builder()
        .limit(LIMIT)
        .connect(url.as_str())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert!(begun.elapsed() < LIMIT * 2, "{:?}", begun.elapsed());

    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(("127.0.0.1", server.port()), Wire::Raw);
    let store = limited(&format!("redis://{}", proxy.addr())).await;
    let held = take(&store, &request(support::id(&store, 1))).await;
    proxy.hold(Direction::ToClient);
    for _ in 0..3 {
        let begun = Instant::now();
        let error = store
            .reserve(&request(support::id(&store, 2)))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
        assert!(begun.elapsed() < LIMIT * 2, "{:?}", begun.elapsed());
    }
    let error = store
        .complete(&held, b""[..].into(), support::hour())
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::StoreUnavailable, Effect::Unknown)
    );
    proxy.heal();
    support::complete(&store, &held, b"").await;
}

/// A connection that leads nowhere is given up, not waited for again.
#[tokio::test]
async fn a_connection_that_fell_silent_is_replaced() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(("127.0.0.1", server.port()), Wire::Raw);
    let store = limited(&format!("redis://{}", proxy.addr())).await;
    let _ = take(&store, &request(support::id(&store, 1))).await;
    proxy.delay(Direction::ToClient, LIMIT * 20);
    assert!(
        store
            .reserve(&request(support::id(&store, 2)))
            .await
            .is_err()
    );
    // What the old connection owes is still on its way; a new one owes nothing.
    proxy.delay(Direction::ToClient, Duration::ZERO);
    let before = proxy.accepted();
    let _ = take(&store, &request(support::id(&store, 3))).await;
    assert_eq!(proxy.accepted(), before + 1);
}

#[tokio::test]
async fn nobody_there_is_known_at_once() {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let begun = Instant::now();
    let error = RedisStore::connect(&format!("redis://127.0.0.1:{port}"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    let nonsense = RedisStore::connect("http://nowhere").await.unwrap_err();
    assert_eq!(nonsense.kind(), ErrorKind::StoreUnavailable);
}

/// RD-05: connections cut at a thousand places leave no key without an end, and no record that
/// does not work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_cuts_leave_no_key_without_an_end() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(("127.0.0.1", server.port()), Wire::Raw);
    let store = support::store_on(&format!("redis://{}", proxy.addr())).await;
    let cuts = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..4_u32)
        .map(|task| {
            let (store, cuts) = (store.clone(), Arc::clone(&cuts));
            tokio::spawn(async move {
                let mut n = 0;
                while cuts.load(Ordering::SeqCst) < 1000 {
                    crate::processes::step(&store, n, n * 4 + task).await;
                    n += 1;
                }
            })
        })
        .collect();
    for n in 0..1000_usize {
        let (direction, bytes) = match n % 2 {
            0 => (Direction::ToServer, n * 7919 % 1_500),
            _ => (Direction::ToClient, n * 7919 % 60),
        };
        proxy.cut_after(direction, Count::Bytes(bytes)).wait().await;
        cuts.fetch_add(1, Ordering::SeqCst);
        if n % 100 == 0 {
            support::assert_every_key_ends(&server);
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    support::assert_every_key_ends(&server);
    proxy.heal();
    tokio::time::sleep(Duration::from_millis(100)).await;
    for n in 0..20 {
        let held = take(&store, &request(support::id(&store, n))).await;
        support::complete(&store, &held, b"works").await;
    }
}
