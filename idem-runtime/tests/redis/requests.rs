//! Requests that are sent twice, answers that are lost, commands that fail beside others.

use std::time::Duration;

use idem_runtime::protocol::Owner;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::{Held, Reserved, Store};
use idem_runtime::{Effect, ErrorKind};
use idem_test_support::proxy::{Fault, Proxy, Wire};
use idem_test_support::{Redis, RedisServer};
use redis::AsyncCommands;

use crate::support::{self, granted, hour, outcome_of, raw, request, take};

fn proxy(server: &RedisServer) -> Proxy {
    Proxy::start(("127.0.0.1", server.port()), Wire::Raw)
}

async fn through(proxy: &Proxy) -> RedisStore {
    support::store_on(&format!("redis://{}", proxy.addr())).await
}

/// MY-09: the store asks again over a new connection and meets its own reservation.
#[tokio::test]
async fn a_lost_answer_of_a_reservation_is_asked_for_again() {
    let server = RedisServer::start(&[]);
    let proxy = proxy(&server);
    let store = through(&proxy).await;
    for (n, fault) in [Fault::CutAnswer, Fault::CutBefore].into_iter().enumerate() {
        let warm = take(&store, &request(support::id(&store, format!("warm{n}")))).await;
        support::complete(&store, &warm, b"").await;
        let lost = proxy.on("EVALSHA", fault);
        let held = take(&store, &request(support::id(&store, n))).await;
        assert!(lost.fired());
        support::complete(&store, &held, b"once").await;
    }
}

/// MY-09: without a second connection the answer is unknown; the same owner is recognised later, a
/// new one is refused until the lease ends.
#[tokio::test]
async fn an_owner_is_recognised_and_a_stranger_is_not() {
    let server = RedisServer::start(&[]);
    let proxy = proxy(&server);
    let direct = support::store_on(&server.url()).await;
    let only = raw(&format!("redis://{}", proxy.addr())).await;
    let store = RedisStore::builder().build(only).unwrap();
    let _ = take(&store, &request(support::id(&store, "warm"))).await;
    let asked = support::request_for(support::id(&store, 1), Duration::from_millis(800));
    let lost = proxy.on("EVALSHA", Fault::CutAnswer);
    let unknown = store.reserve(&asked).await.unwrap_err();
    assert!(lost.fired());
    assert_eq!(unknown.kind(), ErrorKind::StoreUnavailable);
    assert_eq!(unknown.effect(), Effect::None);

    let mut stranger = asked;
    stranger.owner = Owner::fresh();
    let answer = direct.reserve(&stranger).await.unwrap();
    assert!(matches!(answer, Reserved::InProgress { .. }), "{answer:?}");
    let first = take(&direct, &asked).await;
    let again = take(&direct, &asked).await;
    assert_eq!(first, again);
    tokio::time::sleep(Duration::from_millis(900)).await;
    let after = take(&direct, &stranger).await;
    assert!(after.fence > first.fence);
}

/// The outcome is recorded once, whether its answer is lost or the request is.
#[tokio::test]
async fn a_lost_answer_of_a_completion_is_asked_for_again() {
    let server = RedisServer::start(&[]);
    let proxy = proxy(&server);
    let store = through(&proxy).await;
    for (n, fault) in [Fault::CutAnswer, Fault::CutBefore].into_iter().enumerate() {
        let warm = take(&store, &request(support::id(&store, format!("warm{n}")))).await;
        support::complete(&store, &warm, b"").await;
        let held = take(&store, &request(support::id(&store, n))).await;
        let lost = proxy.on("EVALSHA", fault);
        let answer = store.complete(&held, b"once"[..].into(), hour()).await;
        assert_eq!(answer.unwrap(), Held::Yes);
        assert!(lost.fired());
        let replay = store.reserve(&request(held.id)).await.unwrap();
        assert_eq!(outcome_of(&replay), b"once");
        // Only the same outcome is the same completion.
        let other = store.complete(&held, b"other"[..].into(), hour()).await;
        assert_eq!(other.unwrap(), Held::No);
    }
}

/// A repetition changes neither lease nor retention.
#[tokio::test]
async fn a_repeated_request_extends_nothing() {
    let store = support::store().await;
    let mut server = raw(&Redis::url()).await;
    let asked = request(support::id(&store, 1));
    let held = take(&store, &asked).await;
    let key = store.key_of(held.id);
    let lease = |shown: idem_runtime::store::Stored| shown.record.state;
    let before = lease(store.lookup(held.id).await.unwrap().unwrap());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(take(&store, &asked).await, held);
    assert_eq!(lease(store.lookup(held.id).await.unwrap().unwrap()), before);
    support::complete(&store, &held, b"x").await;
    let ends: i64 = server.pexpire_time(&key).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    support::complete(&store, &held, b"x").await;
    assert_eq!(server.pexpire_time::<_, i64>(&key).await.unwrap(), ends);
}

/// RD-01: one call meets a key of another type; the others get their own answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_fails_fails_alone() {
    let store = support::store().await;
    let mut server = raw(&Redis::url()).await;
    let wrong = 17;
    for n in 0..50 {
        let id = support::id(&store, n);
        if n == wrong {
            let _: () = server.lpush(store.key_of(id), "a list").await.unwrap();
        } else {
            let held = take(&store, &request(id)).await;
            support::complete(&store, &held, format!("outcome {n}").as_bytes()).await;
        }
    }
    // Enough replays for the plain read to be tried too.
    for _ in 0..4 {
        let calls: Vec<_> = (0..50)
            .map(|n| {
                let store = store.clone();
                tokio::spawn(async move { store.reserve(&request(support::id(&store, n))).await })
            })
            .collect();
        for (n, call) in calls.into_iter().enumerate() {
            match call.await.unwrap() {
                Err(error) => {
                    assert_eq!(
                        (n, error.kind()),
                        (wrong, ErrorKind::StoreRefused),
                        "{error}"
                    );
                }
                Ok(reserved) => {
                    assert_eq!(outcome_of(&reserved), format!("outcome {n}").as_bytes());
                }
            }
        }
    }
    let id = support::id(&store, wrong);
    assert_eq!(
        store.lookup(id).await.unwrap_err().kind(),
        ErrorKind::StoreRefused
    );
    let _: () = server.del(store.key_of(id)).await.unwrap();
}

/// A server that has lost its scripts is sent them again, in the middle of everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_scripts_are_sent_again() {
    let server = RedisServer::start(&[]);
    let store = support::store_on(&server.url()).await;
    for n in 0..10 {
        let id = support::id(&store, n);
        let flush = || server.command(&["SCRIPT", "FLUSH"]);
        flush();
        let held = take(&store, &request(id)).await;
        flush();
        assert_eq!(store.renew(&held, support::LEASE).await.unwrap(), Held::Yes);
        flush();
        assert!(store.lookup(id).await.unwrap().is_some());
        flush();
        support::complete(&store, &held, b"done").await;
        flush();
        assert!(store.forget(id).await.unwrap());
        let again = granted(store.reserve(&request(id)).await.unwrap());
        flush();
        assert_eq!(store.release(&again).await.unwrap(), Held::Yes);
    }
}

/// Where nearly all calls are replays a plain read answers, and what is no replay still works.
#[tokio::test]
async fn reading_first_changes_no_answer() {
    let server = RedisServer::start(&[]);
    let store = support::store_on(&server.url()).await;
    let held = take(&store, &request(support::id(&store, "kept"))).await;
    support::complete(&store, &held, b"kept").await;
    let replay = |n: usize| {
        let (store, id) = (store.clone(), held.id);
        async move {
            for _ in 0..n {
                assert_eq!(
                    outcome_of(&store.reserve(&request(id)).await.unwrap()),
                    b"kept"
                );
            }
        }
    };
    replay(100).await;
    server.command(&["CONFIG", "RESETSTAT"]);
    replay(100).await;
    let counts = server.command(&["INFO", "commandstats"]).text();
    assert!(counts.contains("cmdstat_get:calls=100,"), "{counts}");
    assert!(!counts.contains("cmdstat_evalsha"), "{counts}");

    let mut other = request(held.id);
    other.fingerprint = support::payload(2);
    assert_eq!(store.reserve(&other).await.unwrap(), Reserved::Mismatch);
    let fresh = take(&store, &request(support::id(&store, "fresh"))).await;
    replay(20).await;
    let answer = store.reserve(&request(fresh.id)).await.unwrap();
    assert!(matches!(answer, Reserved::InProgress { .. }), "{answer:?}");
    assert_eq!(store.release(&fresh).await.unwrap(), Held::Yes);
    replay(20).await;
    let again = take(&store, &request(fresh.id)).await;
    assert!(again.fence > fresh.fence);
}
