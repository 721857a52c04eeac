//! Leased stores behind a front.

use std::sync::Arc;

use idem_runtime::ErrorKind;
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::retention::Retention;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::tiered::{MemoryFront, Tiered};
use idem_runtime::store::{Held, Request, Reserved, Store};
use idem_runtime::testing::fault::{Fault, Faulty, Step};
use idem_test_support::Redis;

use crate::redis::namespace;
use crate::support::{id, millis};

fn payload(number: u8) -> Fingerprint {
    let mut bytes = [number; 17];
    bytes[0] = 1;
    Fingerprint::from_bytes(bytes)
}

fn request(key: &str) -> Request<'static> {
    Request::new(id(key), payload(7), millis(10_000))
}

async fn complete<S: Store>(store: &S, key: &str) {
    let Reserved::Granted(held) = store.reserve(&request(key)).await.unwrap() else {
        panic!("not free");
    };
    let hour = Retention::new(millis(3_600_000)).unwrap();
    let done = store.complete(&held, b"done".as_slice().into(), hour).await;
    assert_eq!(done.unwrap(), Held::Yes);
}

#[tokio::test]
async fn the_first_repeat_fills_the_front_and_the_others_need_no_store() {
    let store = Faulty::new(MemoryStore::new());
    let tiered = Tiered::new(MemoryFront::new(1 << 20), store.clone());
    complete(&tiered, "7").await;
    assert_eq!(store.count(Step::Reserve), 1);
    for _ in 0..10 {
        let answer = tiered.reserve(&request("7")).await.unwrap();
        assert!(matches!(answer, Reserved::Completed { outcome, .. } if *outcome == *b"done"));
    }
    assert_eq!(store.count(Step::Reserve), 2);
    store.always(Step::Reserve, Fault::Before);
    assert!(tiered.reserve(&request("7")).await.is_ok());
    let other = Request::new(id("7"), payload(8), millis(10_000));
    assert_eq!(tiered.reserve(&other).await.unwrap(), Reserved::Mismatch);
    // The store decides about everything else, and fails closed.
    let error = tiered.reserve(&request("8")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
}

#[tokio::test]
async fn what_runs_is_never_answered_from_the_front() {
    let tiered = Tiered::new(MemoryFront::new(1 << 20), MemoryStore::new());
    let Reserved::Granted(held) = tiered.reserve(&request("7")).await.unwrap() else {
        panic!("not free");
    };
    for _ in 0..3 {
        let answer = tiered.reserve(&request("7")).await.unwrap();
        assert!(matches!(answer, Reserved::InProgress { .. }));
    }
    assert_eq!(tiered.release(&held).await.unwrap(), Held::Yes);
    assert!(matches!(
        tiered.reserve(&request("7")).await.unwrap(),
        Reserved::Granted(_)
    ));
}

#[tokio::test]
async fn forgetting_reaches_the_front() {
    let tiered = Tiered::new(MemoryFront::new(1 << 20), MemoryStore::new());
    complete(&tiered, "7").await;
    let _ = tiered.reserve(&request("7")).await.unwrap();
    assert!(tiered.forget(id("7")).await.unwrap());
    assert!(matches!(
        tiered.reserve(&request("7")).await.unwrap(),
        Reserved::Granted(_)
    ));
}

/// A store that has to ask further for what is left of a record.
#[tokio::test]
async fn a_redis_store_fills_the_front_too() {
    let store = RedisStore::builder().namespace(namespace());
    let store = Faulty::new(store.connect(Redis::url().as_str()).await.unwrap());
    let front = MemoryFront::new(1 << 20);
    let tiered = Tiered::new(front.clone(), store.clone());
    complete(&tiered, "7").await;
    for _ in 0..5 {
        let answer = tiered.reserve(&request("7")).await.unwrap();
        assert!(matches!(answer, Reserved::Completed { .. }));
    }
    assert_eq!((store.count(Step::Reserve), front.len()), (2, 1));
}

/// Many calls at once, through the engine's own eyes: an Arc of it is a store as well.
#[tokio::test]
async fn it_is_a_store_like_any_other() {
    let store = Arc::new(Tiered::new(MemoryFront::new(1 << 20), MemoryStore::new()));
    complete(&store, "7").await;
    assert!(store.lookup(id("7")).await.unwrap().is_some());
    assert_eq!(store.purge(10).await.unwrap(), 0);
}
