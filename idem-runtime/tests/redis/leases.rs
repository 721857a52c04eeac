//! Leases and fences: who holds a record, until when, and under which number.

use std::time::Duration;

use idem_runtime::protocol::State;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::{Held, Reserved, Store};
use idem_test_support::{Redis, RedisServer};
use redis::AsyncCommands;

use crate::support::{self, hour, outcome_of, raw, request, request_for, take};

const SHORT: Duration = Duration::from_millis(200);

/// RD-06: a holder that overran its lease ends nothing of its successor's.
#[tokio::test]
async fn a_late_release_frees_nobody() {
    let store = support::store().await;
    let id = support::id(&store, 1);
    let a = take(&store, &request_for(id, SHORT)).await;
    tokio::time::sleep(SHORT + Duration::from_millis(50)).await;
    let b = take(&store, &request(id)).await;
    assert_eq!(store.release(&a).await.unwrap(), Held::No);
    let c = store.reserve(&request(id)).await.unwrap();
    assert!(matches!(c, Reserved::InProgress { .. }), "{c:?}");
    assert_eq!(store.renew(&b, SHORT).await.unwrap(), Held::Yes);
}

/// LK-01: who was stopped past its lease is refused, and its number is the lower one.
#[tokio::test]
async fn a_late_owner_has_the_lower_fence_and_is_refused() {
    let store = support::store().await;
    let id = support::id(&store, 1);
    let a = take(&store, &request_for(id, SHORT)).await;
    // Blocks the only thread, so that nothing can be renewed.
    std::thread::sleep(SHORT * 2);
    let b = take(&store, &request(id)).await;
    assert!(b.fence > a.fence);
    let late = store.complete(&a, b"a"[..].into(), hour()).await;
    assert_eq!(late.unwrap(), Held::No);
    support::complete(&store, &b, b"b").await;
    assert_eq!(
        outcome_of(&store.reserve(&request(id)).await.unwrap()),
        b"b"
    );
}

/// A lease that is over but was not taken over is still its owner's.
#[tokio::test]
async fn a_lapsed_lease_that_nobody_took_still_counts() {
    let store = support::store().await;
    for step in ["complete", "renew", "release"] {
        let held = take(&store, &request_for(support::id(&store, step), SHORT / 4)).await;
        tokio::time::sleep(SHORT).await;
        let answer = match step {
            "complete" => store.complete(&held, b""[..].into(), hour()).await,
            "renew" => store.renew(&held, SHORT).await,
            _ => store.release(&held).await,
        };
        assert_eq!(answer.unwrap(), Held::Yes, "{step}");
    }
}

/// IP-03: a record without the end of a lease is held until its key goes, whoever wrote it.
#[tokio::test]
async fn a_record_without_a_lease_is_held_until_its_key_goes() {
    let store = support::store().await;
    let mut server = raw(&Redis::url()).await;
    let held = take(&store, &request_for(support::id(&store, 1), SHORT)).await;
    let key = store.key_of(held.id);
    let _: () = server.setrange(&key, 18, &[0_u8; 8][..]).await.unwrap();
    let _: () = server.pexpire(&key, 600).await.unwrap();
    tokio::time::sleep(SHORT * 2).await;
    let b = store.reserve(&request(held.id)).await.unwrap();
    assert!(matches!(b, Reserved::InProgress { .. }), "{b:?}");
    assert!(!store.forget(held.id).await.unwrap());
    let shown = store.lookup(held.id).await.unwrap().unwrap().record.state;
    assert!(
        matches!(
            shown,
            State::Reserved {
                lease_until: None,
                ..
            }
        ),
        "{shown:?}"
    );
    tokio::time::sleep(Duration::from_millis(300)).await;
    let _ = take(&store, &request(held.id)).await;

    let forever = take(&store, &request_for(support::id(&store, 2), SHORT)).await;
    let key = store.key_of(forever.id);
    let _: () = server.setrange(&key, 18, &[0_u8; 8][..]).await.unwrap();
    let _: () = server.persist(&key).await.unwrap();
    let b = store.reserve(&request(forever.id)).await.unwrap();
    assert_eq!(b, Reserved::InProgress { free_in: None });
    assert_eq!(store.release(&forever).await.unwrap(), Held::Yes);
}

/// Fences grow over take-overs, releases, forgets and records that are gone.
#[tokio::test]
async fn fences_grow_whatever_became_of_the_last_one() {
    let store = support::store().await;
    let mut server = raw(&Redis::url()).await;
    let id = support::id(&store, 1);
    let mut last = 0;
    for round in 0..60 {
        let held = take(&store, &request_for(id, Duration::from_millis(5))).await;
        assert!(held.fence.get() > last, "{} after {last}", held.fence);
        last = held.fence.get();
        match round % 4 {
            0 => tokio::time::sleep(Duration::from_millis(8)).await,
            1 => assert_eq!(store.release(&held).await.unwrap(), Held::Yes),
            2 => {
                support::complete(&store, &held, b"").await;
                assert!(store.forget(id).await.unwrap());
            }
            _ => server.del(store.key_of(id)).await.unwrap(),
        }
    }
}

/// A clock that went back (here: a record from the future) does not lower a fence.
#[tokio::test]
async fn fences_grow_over_a_clock_that_goes_back() {
    let store = support::store().await;
    let mut server = raw(&Redis::url()).await;
    let held = take(&store, &request_for(support::id(&store, 1), SHORT)).await;
    let key = store.key_of(held.id);
    let ahead = held.fence.get() + 3_600_000_000;
    let _: () = server
        .setrange(&key, 2, &ahead.to_be_bytes()[..])
        .await
        .unwrap();
    tokio::time::sleep(SHORT * 2).await;
    let next = take(&store, &request(held.id)).await;
    assert_eq!(next.fence.get(), ahead + 1);
    assert_eq!(store.release(&next).await.unwrap(), Held::Yes);
    let after = take(&store, &request(held.id)).await;
    assert_eq!(after.fence.get(), ahead + 2);
    support::complete(&store, &after, b"").await;
    assert!(store.forget(after.id).await.unwrap());
    assert_eq!(
        take(&store, &request(after.id)).await.fence.get(),
        ahead + 3
    );
}

/// No key without an end but an outcome kept for ever; none that outlives its use by much.
#[tokio::test]
async fn every_key_has_an_end() {
    let server = RedisServer::start(&[]);
    let builder = RedisStore::builder().abandoned_for(Duration::from_secs(60));
    let store = builder.connect(server.url()).await.unwrap();
    let pttl = |id| server.command(&["PTTL", &store.key_of(id)]).number();
    let about = |got: i64, wanted: i64| assert!((wanted - 2_000..=wanted).contains(&got), "{got}");
    let held = take(&store, &request(support::id(&store, 1))).await;
    about(pttl(held.id), 90_000);
    let _ = store.renew(&held, Duration::from_secs(10)).await.unwrap();
    about(pttl(held.id), 70_000);
    let _ = store.release(&held).await.unwrap();
    about(pttl(held.id), 120_000);
    let again = take(&store, &request(held.id)).await;
    support::complete(&store, &again, b"").await;
    about(pttl(held.id), 3_600_000);
    assert!(store.forget(held.id).await.unwrap());
    about(pttl(held.id), 120_000);
    let held = take(&store, &request(held.id)).await;
    let forever = idem_runtime::retention::Retention::FOREVER;
    let _ = store
        .complete(&held, b""[..].into(), forever)
        .await
        .unwrap();
    assert_eq!(pttl(held.id), -1);
}
