//! Copies that come late: a forgotten outcome does not come back.

use std::time::{Duration, Instant};

use idem_runtime::key::RecordId;
use idem_runtime::store::Until;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::tiered::{BARRIER, Front, LATEST, MemoryFront, Stack};
use idem_test_support::RedisServer;

use crate::redis::redis_front;
use crate::support::{id, kept};

/// The end of a copy whose record was read this long ago.
fn read_ago(ago: Duration) -> Until {
    Until::FOREVER.asked_at(Instant::now().checked_sub(ago).unwrap())
}

async fn takes(front: &impl Front, id: RecordId, until: Until) -> bool {
    front.put(id, &kept(b"late"), until).await.unwrap();
    front.get(id).await.unwrap().is_some()
}

/// The barrier of a record that is forgotten now ends when no earlier copy is taken any more.
#[tokio::test]
async fn a_copy_that_was_read_long_ago_is_put_nowhere() {
    assert!(LATEST < BARRIER);
    let memory = MemoryFront::new(1 << 20);
    assert!(!takes(&memory, id("1"), read_ago(LATEST)).await);
    assert!(takes(&memory, id("1"), read_ago(Duration::ZERO)).await);
    let redis = redis_front().await;
    assert!(!takes(&redis, id("1"), read_ago(LATEST)).await);
    assert!(takes(&redis, id("1"), read_ago(Duration::ZERO)).await);
    let stack = Stack::new(MemoryFront::new(1 << 20), redis_front().await);
    assert!(!takes(&stack, id("1"), read_ago(BARRIER)).await);
    assert!(takes(&stack, id("1"), read_ago(Duration::ZERO)).await);
}

#[tokio::test]
async fn a_barrier_is_not_evicted_by_copies() {
    let front = MemoryFront::new(64 << 10);
    front.remove(id("1")).await.unwrap();
    for n in 0..1000 {
        let other = RecordId::new("", "front", &[], &n.to_string());
        let copy = kept(&[7; 500]);
        front.put(other, &copy, Until::FOREVER).await.unwrap();
    }
    assert!(!takes(&front, id("1"), read_ago(Duration::ZERO)).await);
    assert!(takes(&front, id("2"), read_ago(Duration::ZERO)).await);
}

/// RD-03: a value that stands under another record's key is not that record's.
#[tokio::test]
async fn a_copy_of_another_record_is_none() {
    let server = RedisServer::start(&[]);
    let store = RedisStore::builder().connect_later(server.url().as_str());
    let front = idem_runtime::store::redis::RedisFront::on(store.unwrap());
    let front = front.limit(Duration::from_secs(2));
    assert!(takes(&front, id("1"), Until::FOREVER).await);
    server.command(&["COPY", &front.key_of(id("1")), &front.key_of(id("2"))]);
    assert!(front.get(id("2")).await.unwrap().is_none());
    assert!(front.get_to_copy(id("2")).await.unwrap().is_none());
    assert!(front.get(id("1")).await.unwrap().is_some());
}
