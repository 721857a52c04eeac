//! Retention: by the server's clock, in milliseconds, up to the common maximum.

use std::time::Duration;

use bytes::Bytes;
use idem_runtime::ErrorKind;
use idem_runtime::protocol::State;
use idem_runtime::retention::{MAX_RETENTION, Retention};
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::{Held, Reserved, Store};
use idem_test_support::{Redis, RedisServer};
use redis::AsyncCommands;

use crate::support::{self, outcome_of, raw, request, request_for, take};

async fn completed(
    store: &RedisStore,
    key: &str,
    retention: Retention,
) -> idem_runtime::key::RecordId {
    let held = take(store, &request(support::id(store, key))).await;
    let done = store
        .complete(&held, Bytes::from_static(b"kept"), retention)
        .await;
    assert_eq!(done.unwrap(), Held::Yes);
    held.id
}

/// TTL-01, TTL-03: what is no retention is refused before the store is asked; the longest is kept.
#[tokio::test]
async fn the_longest_retention_neither_wraps_nor_is_cut() {
    for refused in [
        Duration::ZERO,
        Duration::from_nanos(1),
        MAX_RETENTION + Duration::from_nanos(1),
        Duration::from_secs(i64::MAX as u64),
        Duration::MAX,
    ] {
        let error = Retention::new(refused).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidTtl, "{refused:?}");
    }
    let store = support::store().await;
    let mut server = raw(&Redis::url()).await;
    let id = completed(&store, "longest", Retention::new(MAX_RETENTION).unwrap()).await;
    let left: i64 = server.pttl(store.key_of(id)).await.unwrap();
    assert!(MAX_RETENTION.as_millis() as i64 - left < 1_000, "{left}");
    assert_eq!(
        outcome_of(&store.reserve(&request(id)).await.unwrap()),
        b"kept"
    );
}

/// A lease beyond all measure is a long one, not one in the past.
#[tokio::test]
async fn the_longest_lease_does_not_wrap() {
    let store = support::store().await;
    for lease in [MAX_RETENTION, Duration::from_secs(u64::MAX), Duration::MAX] {
        let id = support::id(&store, format!("{lease:?}"));
        let held = take(&store, &request_for(id, lease)).await;
        let other = store.reserve(&request(id)).await.unwrap();
        assert!(matches!(other, Reserved::InProgress { .. }), "{other:?}");
        assert_eq!(store.renew(&held, lease).await.unwrap(), Held::Yes);
        assert_eq!(store.release(&held).await.unwrap(), Held::Yes);
    }
}

/// TTL-02: milliseconds stay milliseconds.
#[tokio::test]
async fn the_remaining_time_is_what_was_asked_for() {
    let store = support::store().await;
    let mut server = raw(&Redis::url()).await;
    for millis in [900, 1_500, 1_000, 90_000, 86_400_000, 604_800_000] {
        let retention = Retention::new(Duration::from_millis(millis)).unwrap();
        let id = completed(&store, &millis.to_string(), retention).await;
        let left: i64 = server.pttl(store.key_of(id)).await.unwrap();
        let missing = millis as i64 - left;
        assert!((0..=50).contains(&missing), "{millis} ms: {left} left");
        let state = store.lookup(id).await.unwrap().unwrap().record.state;
        let State::Completed {
            recorded_at,
            keep_until: Some(until),
            ..
        } = state
        else {
            panic!("{state:?}");
        };
        let kept = recorded_at.until(until).as_millis() as u64;
        assert!(kept.abs_diff(millis) <= 1, "{millis} ms: kept for {kept}");
    }
}

/// TTL-05: the same with and without a purge.
#[tokio::test]
async fn an_expired_record_is_absent_purged_or_not() {
    for purging in [false, true] {
        let store = support::store().await;
        let purger = purging.then(|| {
            tokio::spawn({
                let store = store.clone();
                async move {
                    loop {
                        assert_eq!(store.purge(100).await.unwrap(), 0);
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                }
            })
        });
        let second = Retention::new(Duration::from_millis(500)).unwrap();
        let id = completed(&store, "short", second).await;
        assert_eq!(
            outcome_of(&store.reserve(&request(id)).await.unwrap()),
            b"kept"
        );
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert!(store.lookup(id).await.unwrap().is_none());
        assert!(!store.forget(id).await.unwrap());
        let again = take(&store, &request(id)).await;
        support::complete(&store, &again, b"new").await;
        assert_eq!(
            outcome_of(&store.reserve(&request(id)).await.unwrap()),
            b"new"
        );
        purger.inspect(tokio::task::JoinHandle::abort);
    }
}

/// The key goes with the tombstone, the outcome with the first request after its own end.
#[tokio::test]
async fn a12_a_tombstone_is_the_keys_time_and_drops_the_outcome() {
    let store = support::store().await;
    let mut server = raw(&Redis::url()).await;
    let short = Retention::new(Duration::from_millis(20)).unwrap();
    let hour = short.with_tombstone(Duration::from_secs(3_600)).unwrap();
    let id = completed(&store, "hour", hour).await;
    let left: i64 = server.pttl(store.key_of(id)).await.unwrap();
    let missing = 3_600_020 - left;
    assert!((0..=50).contains(&missing), "{left} left");
    let forever = completed(&store, "forever", short.with_tombstone_forever()).await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    for (id, ends) in [(id, true), (forever, false)] {
        let before: Vec<u8> = server.get(store.key_of(id)).await.unwrap();
        // What is only read stays as it is.
        let shown = store.lookup(id).await.unwrap().unwrap().record.state;
        assert!(matches!(shown, State::Tombstone { until } if until.is_some() == ends));
        let answer = store.reserve(&request(id)).await.unwrap();
        assert_eq!(answer, Reserved::OutcomeGone);
        let after: Vec<u8> = server.get(store.key_of(id)).await.unwrap();
        assert_eq!(before.len() - after.len(), b"kept".len() + 8);
        let left: i64 = server.pttl(store.key_of(id)).await.unwrap();
        assert_eq!(left > 0, ends, "{left}");
    }
    // A completion that is sent again finds that it was done, for as long as its outcome is there.
    let held = take(&store, &request(support::id(&store, "again"))).await;
    for _ in 0..2 {
        let done = store
            .complete(&held, Bytes::from_static(b"kept"), hour)
            .await;
        assert_eq!(done.unwrap(), Held::Yes);
    }
}

/// RD-09: nothing is left of many records once their time is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_outlives_the_records() {
    let server = RedisServer::start(&[]);
    let store = support::store_on(&server.url()).await;
    let memory = || {
        let info = server.command(&["INFO", "memory"]).text();
        let used = info
            .lines()
            .find_map(|line| line.strip_prefix("used_memory:"));
        used.unwrap().trim().parse::<i64>().unwrap()
    };
    let second = Retention::new(Duration::from_secs(1)).unwrap();
    completed(&store, "warm", second).await;
    let before = memory();
    let tasks: Vec<_> = (0..20)
        .map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in 0..500 {
                    completed(&store, &format!("{task}.{n}"), second).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    server.wait_until(&["DBSIZE"], |keys| keys.number() == 0);
    let after = memory();
    assert!(after - before < 2_000_000, "{before} then {after}");
}
