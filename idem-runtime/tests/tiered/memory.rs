//! The front in memory: bounded, and gone when it is over.

use std::time::{Duration, Instant};

use idem_runtime::key::RecordId;
use idem_runtime::store::Until;
use idem_runtime::store::tiered::{Front as _, MemoryFront};

use crate::support::kept;

fn id(n: u64) -> RecordId {
    RecordId::new("", "front", &[], &n.to_string())
}

fn soon(time: Duration) -> Until {
    Until::at(Instant::now() + time)
}

#[tokio::test]
async fn it_is_bounded_by_bytes() {
    let front = MemoryFront::new(1 << 20);
    for n in 0..20_000 {
        front
            .put(id(n), &kept(&[7; 200]), Until::FOREVER)
            .await
            .unwrap();
        assert!(front.bytes() <= 1 << 20);
    }
    assert!(front.len() > 1_000);
    // What is asked for stays.
    let (mut hits, hot) = (0, id(1));
    for n in 20_000..30_000 {
        front.put(hot, &kept(b"hot"), Until::FOREVER).await.unwrap();
        front
            .put(id(n), &kept(&[7; 200]), Until::FOREVER)
            .await
            .unwrap();
        hits += usize::from(front.get(hot).await.unwrap().is_some());
    }
    assert!(hits > 9_900, "{hits}");
    // What is larger than the front is not held, and nothing breaks.
    front
        .put(id(0), &kept(&vec![0; 2 << 20]), Until::FOREVER)
        .await
        .unwrap();
    assert!(front.bytes() <= 1 << 20);
}

/// RD-09: back to the base line after expiry and one purge.
#[tokio::test]
async fn rd_09_nothing_is_left_of_what_is_over() {
    let front = MemoryFront::new(64 << 20);
    for n in 0..10_000 {
        front
            .put(id(n), &kept(&[7; 200]), soon(Duration::from_millis(300)))
            .await
            .unwrap();
    }
    front
        .put(id(10_000), &kept(b"stays"), Until::FOREVER)
        .await
        .unwrap();
    assert!(front.bytes() > 2_000_000);
    tokio::time::sleep(Duration::from_millis(350)).await;
    assert!(front.get(id(5)).await.unwrap().is_none());
    front.purge();
    assert_eq!(front.len(), 1);
    assert!(front.bytes() < 1_000);
}

#[tokio::test]
async fn an_entry_is_over_by_its_end_and_by_its_age() {
    let front = MemoryFront::with_max_age(1 << 20, Duration::from_millis(200));
    front
        .put(id(1), &kept(b"end"), soon(Duration::from_millis(50)))
        .await
        .unwrap();
    front
        .put(id(2), &kept(b"age"), Until::FOREVER)
        .await
        .unwrap();
    let end = front.get_to_copy(id(2)).await.unwrap().unwrap().1;
    assert!(end.instant().unwrap() <= Instant::now() + Duration::from_millis(200));
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert!(front.get(id(1)).await.unwrap().is_none());
    assert!(front.get(id(2)).await.unwrap().is_some());
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(front.get(id(2)).await.unwrap().is_none());
    assert!(front.is_empty(), "what is found over is dropped");
}

/// The outcome is handed out, not copied.
#[tokio::test]
async fn an_outcome_is_shared() {
    let front = MemoryFront::new(1 << 20);
    front
        .put(id(1), &kept(&[7; 100]), Until::FOREVER)
        .await
        .unwrap();
    let (a, b) = (
        front.get(id(1)).await.unwrap(),
        front.get(id(1)).await.unwrap(),
    );
    assert_eq!(a.unwrap().outcome.as_ptr(), b.unwrap().outcome.as_ptr());
}
