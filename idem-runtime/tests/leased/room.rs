//! The store in memory is bounded, whatever calls leave behind.

use std::time::Instant as StdInstant;

use idem_runtime::Effect;
use idem_runtime::bytes::Bytes;
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::key::RecordId;
use idem_runtime::protocol::OnCrash;
use idem_runtime::retention::Retention;
use idem_runtime::store::{Held, Request, Reservation, Reserved, Store as _};
use idem_runtime::testing::clock::ManualClock;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn request(n: usize) -> Request<'static> {
    let id = RecordId::new("", "room", &[], &n.to_string());
    Request::new(
        id,
        Fingerprint::from_bytes([1; 17]),
        Duration::from_secs(10),
    )
}

async fn take(store: &MemoryStore, request: &Request<'_>) -> Reservation {
    match store.reserve(request).await.unwrap() {
        Reserved::Granted(held) => held,
        other => panic!("{other:?}"),
    }
}

async fn complete(store: &MemoryStore, held: &Reservation, outcome: &'static [u8], keep: Duration) {
    let retention = Retention::new(keep).unwrap();
    let done = store
        .complete(held, Bytes::from_static(outcome), retention)
        .await;
    assert_eq!(done.unwrap(), Held::Yes);
}

async fn is_full(store: &MemoryStore, n: usize) -> bool {
    room(store, n).await.is_none()
}

/// The reservation, if there is room for it.
async fn room(store: &MemoryStore, n: usize) -> Option<Reservation> {
    match store.reserve(&request(n)).await {
        Ok(Reserved::Granted(held)) => Some(held),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::StoreExhausted);
            assert_eq!(error.effect(), Effect::None);
            None
        }
        other => panic!("{other:?}"),
    }
}

/// Calls that were dropped leave reservations: what lapsed makes room, what is held does not, and what
/// was completed never does.
#[tokio::test]
async fn reservations_of_dropped_calls_make_room() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().capacity(20).clock(clock.clone());
    let store = store.build();
    let done = take(&store, &request(0)).await;
    complete(&store, &done, b"kept", HOUR).await;
    let mut held = request(1);
    held.on_crash = OnCrash::Hold;
    let held = take(&store, &held).await;
    assert_eq!(store.renew(&held, HOUR / 3600).await.unwrap(), Held::Yes);
    for n in 2..20 {
        let _ = take(&store, &request(n)).await;
    }
    assert!(is_full(&store, 100).await, "all leases run");
    clock.advance(Duration::from_secs(11));
    // While there is room they stay: their late owners may still record their outcomes.
    assert_eq!((store.purge(100).await.unwrap(), store.len()), (0, 20));
    assert!(!is_full(&store, 100).await);
    assert_eq!(store.len(), 3);
    assert!(store.lookup(held.id).await.unwrap().is_some());
    let replayed = store.reserve(&request(0)).await.unwrap();
    assert!(matches!(replayed, Reserved::Completed { .. }));
}

/// A purge drops what nobody remembers any more.
#[tokio::test]
async fn a_lapsed_reservation_is_remembered_for_its_time() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder()
        .abandoned_for(HOUR)
        .clock(clock.clone());
    let store = store.build();
    let left = take(&store, &request(1)).await;
    clock.advance(Duration::from_secs(10) + HOUR - Duration::from_millis(1));
    assert_eq!(store.purge(100).await.unwrap(), 0);
    let mut other = request(1);
    let mut bytes = [2; 17];
    bytes[0] = 1;
    other.fingerprint = Fingerprint::from_bytes(bytes);
    assert_eq!(store.reserve(&other).await.unwrap(), Reserved::Mismatch);
    clock.advance(Duration::from_millis(1));
    assert!(store.lookup(left.id).await.unwrap().is_none());
    let next = take(&store, &other).await;
    assert!(next.fence > left.fence);
    clock.advance(HOUR * 2);
    assert_eq!((store.purge(100).await.unwrap(), store.len()), (1, 0));
    assert_eq!(store.bytes(), 0);
}

/// Outcomes are bounded by what they take, not by their number; one that is done is recorded all the
/// same.
#[tokio::test]
async fn it_is_bounded_by_bytes() {
    static OUTCOME: [u8; 10_000] = [7; 10_000];
    let clock = ManualClock::new();
    let store = MemoryStore::builder().bytes(100_000).clock(clock.clone());
    let store = store.build();
    let mut n = 0;
    while let Some(held) = room(&store, n).await {
        complete(&store, &held, &OUTCOME, HOUR).await;
        n += 1;
    }
    assert!((5..12).contains(&n), "{n}");
    assert!(store.bytes() < 120_000);
    clock.advance(HOUR);
    assert!(!is_full(&store, n).await);
    assert!(store.bytes() < 10_000, "{}", store.bytes());
}

/// Refusing costs the same in a store of a hundred as in one of a hundred thousand.
#[tokio::test]
async fn a_full_store_refuses_without_looking_at_every_record() {
    const RECORDS: usize = 100_000;
    let clock = ManualClock::new();
    let store = MemoryStore::builder().capacity(RECORDS).clock(clock);
    let store = store.build();
    for n in 0..RECORDS {
        let held = take(&store, &request(n)).await;
        complete(&store, &held, b"", HOUR).await;
    }
    let filling = StdInstant::now();
    for n in 0..1000 {
        assert!(is_full(&store, RECORDS + n).await);
    }
    // A look at each of them takes milliseconds a call, seconds for a thousand.
    assert!(
        filling.elapsed() < Duration::from_secs(1),
        "{:?}",
        filling.elapsed()
    );
}

/// A reservation that is renewed for ever takes no more room for that.
#[tokio::test]
async fn ends_of_renewed_leases_are_dropped() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let held = take(&store, &request(1)).await;
    for _ in 0..1000 {
        clock.advance(Duration::from_secs(1));
        assert_eq!(store.renew(&held, HOUR).await.unwrap(), Held::Yes);
    }
    clock.advance(HOUR - Duration::from_secs(1));
    complete(&store, &held, b"done", HOUR).await;
    clock.advance(HOUR);
    assert_eq!((store.purge(100).await.unwrap(), store.len()), (1, 0));
}
