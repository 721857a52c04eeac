//! The front in Redis, on real servers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idem_runtime::store::Until;
use idem_runtime::store::redis::{RedisFront, RedisStore};
use idem_runtime::store::tiered::{Front as _, Limits, Tier};
use idem_test_support::{Redis, RedisServer};

use crate::support::{database, effects, id, kept, millis, owned, pay};

/// A namespace that no other test has, on whatever server.
pub(crate) fn namespace() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let since = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    format!("f{}-{since}-{count}", std::process::id())
}

/// A front of the test's own on the shared server, with more patience than a service would have.
pub(crate) async fn redis_front() -> RedisFront {
    let builder = RedisStore::builder().namespace(namespace());
    let store = builder.connect(Redis::url().as_str()).await.unwrap();
    RedisFront::on(store).limit(Duration::from_secs(2))
}

fn front_on(server: &RedisServer) -> RedisFront {
    let store = RedisStore::builder().connect_later(server.url().as_str());
    RedisFront::on(store.unwrap()).limit(millis(500))
}

#[tokio::test]
async fn a_copy_comes_back_with_its_end() {
    let server = RedisServer::start(&[]);
    let (front, other) = (front_on(&server), front_on(&server));
    assert!(front.get(id("1")).await.unwrap().is_none());
    let end = Instant::now() + Duration::from_secs(5);
    front
        .put(id("1"), &kept(b"\0one"), Until::at(end))
        .await
        .unwrap();
    assert_eq!(other.get(id("1")).await.unwrap(), Some(kept(b"\0one")));
    let (copy, until) = other.get_to_copy(id("1")).await.unwrap().unwrap();
    assert_eq!(copy, kept(b"\0one"));
    let until = until.instant().unwrap();
    assert!(until < end && until + Duration::from_secs(2) > end);
    // One that is about to be over is not worth it, and none is kept for ever.
    let soon = Until::at(Instant::now() + millis(50));
    front.put(id("2"), &kept(b""), soon).await.unwrap();
    assert!(front.get(id("2")).await.unwrap().is_none());
    front
        .put(id("3"), &kept(b""), Until::FOREVER)
        .await
        .unwrap();
    for key in ["1", "3"] {
        let ttl = server.command(&["PTTL", &front.key_of(id(key))]);
        assert!(format!("{ttl:?}").contains(char::is_numeric) && !format!("{ttl:?}").contains('-'));
    }
}

#[tokio::test]
async fn what_was_removed_is_kept_out_for_everybody() {
    let server = RedisServer::start(&[]);
    let (front, other) = (front_on(&server), front_on(&server));
    front
        .put(id("1"), &kept(b"old"), Until::FOREVER)
        .await
        .unwrap();
    other.remove(id("1")).await.unwrap();
    front
        .put(id("1"), &kept(b"late"), Until::FOREVER)
        .await
        .unwrap();
    assert!(front.get(id("1")).await.unwrap().is_none());
    assert!(front.get_to_copy(id("1")).await.unwrap().is_none());
}

#[tokio::test]
async fn what_others_wrote_there_is_nothing() {
    let server = RedisServer::start(&[]);
    let front = front_on(&server);
    server.command(&["SET", &front.key_of(id("1")), "something else"]);
    server.command(&["LPUSH", &front.key_of(id("2")), "a list"]);
    assert!(front.get(id("1")).await.unwrap().is_none());
    assert!(front.get(id("2")).await.is_err());
}

/// Killed, stopped, and never there at all.
#[tokio::test]
async fn a_server_that_is_gone_costs_latency_only() {
    let (_database, pool) = database().await;
    let mut server = RedisServer::start(&[]);
    let limits = Limits::new()
        .time(millis(600))
        .failures(3)
        .pause(millis(100));
    let tier = Tier::with_limits(front_on(&server), limits);
    owned(&tier, &pool, pay("before", 1)).await.unwrap();
    assert!(tier.front().get(id("before")).await.unwrap().is_some());
    for (n, stop) in ["kill", "stop"].into_iter().enumerate() {
        match n {
            0 => server.kill9(),
            _ => server.sigstop(),
        }
        let begun = Instant::now();
        for call in 0..10 {
            let key = format!("{stop}{}", call % 2);
            assert_eq!(
                owned(&tier, &pool, pay(&key, 1 + call % 2)).await.unwrap(),
                1 + call % 2
            );
        }
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(effects(&pool, &format!("{stop}0")).await, 1);
        match n {
            0 => server.restart(),
            _ => server.sigcont(),
        }
        // Once it is back, and the pause is over, it is filled again.
        let back = format!("back{n}");
        for _ in 0..100 {
            owned(&tier, &pool, pay(&back, 7)).await.unwrap();
            if matches!(tier.front().get(id(&back)).await, Ok(Some(_))) {
                break;
            }
            tokio::time::sleep(millis(100)).await;
        }
        assert!(tier.front().get(id(&back)).await.unwrap().is_some());
    }
    let nowhere = RedisStore::builder()
        .connect_later("redis://127.0.0.1:1")
        .unwrap();
    let tier = Tier::new(RedisFront::on(nowhere));
    assert_eq!(owned(&tier, &pool, pay("nowhere", 3)).await.unwrap(), 3);
}
