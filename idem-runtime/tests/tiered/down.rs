//! A front that fails, hangs or comes back costs time and nothing else.

use std::time::{Duration, Instant};

use idem_runtime::store::tiered::{Front as _, Limits, MemoryFront, Stack, Tier};

use crate::support::{Flaky, Mode, committed, database, effects, id, kept, millis, owned, pay};

#[tokio::test]
async fn a_front_that_is_down_costs_latency_only() {
    let (_database, pool) = database().await;
    for mode in [Mode::Fails, Mode::Hangs] {
        let front = Flaky::new(MemoryFront::new(1 << 20));
        front.set(mode);
        let limits = Limits::new()
            .time(millis(20))
            .failures(3)
            .pause(Duration::from_secs(60));
        let tier = Tier::with_limits(front.clone(), limits);
        let key = |n: u64| format!("{mode:?}{n}");
        let begun = Instant::now();
        for n in 0..40 {
            let key = key(n % 10);
            assert_eq!(
                owned(&tier, &pool, pay(&key, n % 10 + 1)).await.unwrap(),
                n % 10 + 1
            );
            assert_eq!(
                committed(&tier, &pool, pay(&key, 99)).await.unwrap(),
                n % 10 + 1
            );
        }
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{:?}",
            begun.elapsed()
        );
        for n in 0..10 {
            assert_eq!(effects(&pool, &key(n)).await, 1, "a second run");
        }
        assert_eq!(
            front.gets() + front.puts(),
            3,
            "{mode:?}: it is still asked"
        );
    }
}

#[tokio::test]
async fn a_front_that_comes_back_is_used_again() {
    let (_database, pool) = database().await;
    let front = Flaky::new(MemoryFront::new(1 << 20));
    let limits = Limits::new()
        .time(millis(20))
        .failures(2)
        .pause(millis(100));
    let tier = Tier::with_limits(front.clone(), limits);
    front.set(Mode::Fails);
    for n in 0..5 {
        owned(&tier, &pool, pay(&n.to_string(), 1)).await.unwrap();
    }
    let asked = front.gets() + front.puts();
    front.set(Mode::Works);
    // How often it has failed, and so how long it is left alone, depends on how slow the calls were.
    owned(&tier, &pool, pay("back", 1)).await.unwrap();
    for _ in 0..500 {
        if front.gets() + front.puts() > asked {
            break;
        }
        tokio::time::sleep(millis(20)).await;
        owned(&tier, &pool, pay("back", 1)).await.unwrap();
    }
    assert!(front.gets() + front.puts() > asked);
    assert_eq!(owned(&tier, &pool, pay("back", 2)).await.unwrap(), 1);
    assert!(front.get(id("back")).await.unwrap().is_some());
}

/// A call that is dropped while it probes does not leave the front out for good.
#[tokio::test]
async fn a_dropped_probe_is_followed_by_another() {
    let front = Flaky::new(MemoryFront::new(1 << 20));
    let limits = Limits::new().time(millis(50)).failures(1).pause(millis(30));
    let tier = Tier::with_limits(front.clone(), limits);
    front.set(Mode::Fails);
    assert!(!tier.remove(id("7")).await);
    front.set(Mode::Hangs);
    tokio::time::sleep(millis(40)).await;
    assert!(
        tokio::time::timeout(millis(5), tier.remove(id("7")))
            .await
            .is_err()
    );
    front.set(Mode::Works);
    tokio::time::sleep(millis(100)).await;
    assert!(tier.remove(id("7")).await);
}

#[tokio::test]
async fn the_near_front_answers_while_the_far_one_is_down() {
    let near = MemoryFront::new(1 << 20);
    let far = Flaky::new(MemoryFront::new(1 << 20));
    let stack = Stack::with_limits(near.clone(), far.clone(), Limits::new().failures(1));
    let until = idem_runtime::store::Until::FOREVER;
    far.put(id("far"), &kept(b"far"), until).await.unwrap();
    assert_eq!(
        stack.get(id("far")).await.unwrap().unwrap().outcome,
        b"far".as_slice()
    );
    assert_eq!(near.len(), 1, "copied into the near one");
    far.set(Mode::Hangs);
    for _ in 0..5 {
        assert!(stack.get(id("far")).await.unwrap().is_some());
        assert!(stack.get(id("nowhere")).await.unwrap().is_none());
    }
    stack.put(id("near"), &kept(b"near"), until).await.unwrap();
    assert!(stack.get(id("near")).await.unwrap().is_some());
    assert!(stack.remove(id("near")).await.is_err(), "one was not told");
    assert!(stack.get(id("near")).await.unwrap().is_none());
}
