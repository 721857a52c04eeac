//! Transactions of the framework's own behind a front.

use std::sync::Arc;

use idem_runtime::ErrorKind;
use idem_runtime::store::filter::Filter;
use idem_runtime::store::tiered::{MemoryFront, Tier};
use idem_runtime::testing::replay;
use idem_test_support::proxy::Fault;

use crate::support::{Asked, Failure, Flaky, database, effects, owned, owned_with, pay, refused};

fn memory() -> Tier<MemoryFront> {
    Tier::new(MemoryFront::new(1 << 20))
}

#[tokio::test]
async fn a_commit_fills_the_front() {
    let (database, pool) = database().await;
    let tier = memory();
    assert_eq!(owned(&tier, &pool, pay("7", 1)).await.unwrap(), 1);
    assert_eq!(tier.front().len(), 1);
    let proxy = database.proxy();
    let watched = database.pool_through(&proxy, 1);
    assert_eq!(owned(&tier, &watched, pay("7", 2)).await.unwrap(), 1);
    assert_eq!(proxy.accepted(), 0, "the database was asked");
    let other = Asked {
        payload: 5,
        ..pay("7", 3)
    };
    assert_eq!(
        refused(owned(&tier, &watched, other).await),
        ErrorKind::FingerprintMismatch
    );
    assert_eq!(effects(&pool, "7").await, 1);
}

#[tokio::test]
async fn what_is_rolled_back_leaves_no_mark() {
    let (_database, pool) = database().await;
    let tier = memory();
    let declined = owned(&tier, &pool, pay("7", 0)).await;
    assert!(matches!(declined, Err(Failure::Declined)));
    assert!(tier.front().is_empty());
    // Dropped in the body.
    let dropped = owned_with(&tier, &pool, pay("7", 1), async || {
        std::future::pending().await
    });
    assert!(
        tokio::time::timeout(crate::support::millis(200), dropped)
            .await
            .is_err()
    );
    assert!(tier.front().is_empty());
    assert_eq!(owned(&tier, &pool, pay("7", 2)).await.unwrap(), 2);
}

#[tokio::test]
async fn a_commit_that_never_happened_leaves_no_mark_and_one_that_did_does() {
    let (database, pool) = database().await;
    let tier = memory();
    let proxy = database.proxy();
    let cut = database.pool_through(&proxy, 2);
    let lost = proxy.on("COMMIT", Fault::CutBefore);
    let answer = owned(&tier, &cut, pay("1", 1)).await;
    assert!(lost.fired());
    assert_eq!(refused(answer), ErrorKind::StoreUnavailable);
    assert!(tier.front().is_empty());
    let lost = proxy.on("COMMIT", Fault::CutAnswer);
    assert_eq!(owned(&tier, &cut, pay("2", 2)).await.unwrap(), 2);
    assert!(lost.fired());
    assert_eq!(tier.front().len(), 1);
    assert_eq!(
        (effects(&pool, "1").await, effects(&pool, "2").await),
        (0, 1)
    );
}

/// A repeat whose record another process wrote fills the front on the way it takes.
#[tokio::test]
async fn a_repeat_fills_the_front() {
    let (_database, pool) = database().await;
    owned(&memory(), &pool, pay("7", 1)).await.unwrap();
    let tier = memory();
    assert_eq!(owned(&tier, &pool, pay("7", 2)).await.unwrap(), 1);
    assert_eq!(tier.front().len(), 1);
}

/// F5, through a front.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f5_a_thousand_equal_calls_run_once() {
    let (_database, pool) = database().await;
    let tier = Arc::new(memory());
    let report = replay::run(1000, || {
        let (tier, pool) = (Arc::clone(&tier), pool.clone());
        async move { owned(&tier, &pool, pay("same", 7)).await }
    })
    .await;
    assert!(report.answers().all(|answer| matches!(answer, Ok(7))));
    assert_eq!(
        (report.answers().count(), effects(&pool, "same").await),
        (1000, 1)
    );
}

/// A key that is new here is not looked up, and one that only another process has seen is answered
/// all the same.
#[tokio::test]
async fn a_filter_saves_look_ups_and_decides_nothing() {
    let (_database, pool) = database().await;
    let front = Flaky::new(MemoryFront::new(1 << 20));
    let tier = Tier::new(front.clone()).filter(Filter::new(1000));
    for n in 0..50 {
        owned(&tier, &pool, pay(&n.to_string(), 1)).await.unwrap();
    }
    assert!(front.gets() <= 5, "{}", front.gets());
    let before = front.gets();
    for n in 0..50 {
        assert_eq!(
            owned(&tier, &pool, pay(&n.to_string(), 2)).await.unwrap(),
            1
        );
    }
    assert_eq!(front.gets(), before + 50);
    let restarted = Tier::new(MemoryFront::new(1 << 20)).filter(Filter::new(1000));
    for n in 0..50 {
        assert_eq!(
            owned(&restarted, &pool, pay(&n.to_string(), 3))
                .await
                .unwrap(),
            1
        );
    }
    assert_eq!(effects(&pool, "0").await, 1);
}
