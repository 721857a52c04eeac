//! Telling a replay from a first run.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idem::{Answered, MemoryStore, idempotent, observe};
use idem_test_support::Body;
use sqlx::SqliteTransaction;

use crate::support::{Failure, Fresh, committed};

#[idempotent(key = "{no}", ttl = "1h", store = store)]
async fn leaf(store: &MemoryStore, no: u64, cents: i64, body: &Body) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[idempotent(key = "{no}", ttl = "1h", store = store)]
async fn parent(store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
    leaf(store, no, 5, body).await?;
    Ok(body.run().await)
}

#[idempotent(key = "{no}", ttl = "1h", store = tx)]
async fn in_tx(tx: &mut SqliteTransaction<'_>, no: u64, body: &Body) -> Result<usize, Failure> {
    Ok(body.run().await)
}

fn now_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// The time of recording, which must lie between `from` and now.
fn assert_recorded_since(from: u64, answered: Option<Answered>) {
    match answered {
        Some(Answered::Replay {
            recorded_at: Some(at),
        }) => {
            let at = at.as_millis();
            assert!((from..=now_millis()).contains(&at), "{from} {at}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a10_first_run_replay_and_refusal() {
    let (store, body, begun) = (MemoryStore::new(), Body::new(), now_millis());
    let (answer, seen) = observe(leaf(&store, 1, 5, &body)).await;
    answer.unwrap();
    assert_eq!(seen.answered(), Some(Answered::FirstRun));
    assert!(!seen.replayed());
    let id = seen.record_id().unwrap();

    let (answer, seen) = observe(leaf(&store, 1, 5, &body)).await;
    answer.unwrap();
    assert!(seen.replayed());
    assert_recorded_since(begun, seen.answered());
    assert_eq!(seen.record_id(), Some(id));

    let (answer, seen) = observe(leaf(&store, 1, 6, &body)).await;
    answer.unwrap_err();
    assert_eq!(seen.answered(), Some(Answered::Refused));
    assert_eq!(seen.record_id(), Some(id));
}

#[tokio::test]
async fn a10_the_databases_clock_tells_when() {
    let (fresh, body, begun) = (Fresh::new().await, Body::new(), now_millis());
    committed!(fresh, tx => in_tx(tx, 1, &body)).unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    let mut tx = fresh.begin().await;
    let (answer, seen) = observe(in_tx(&mut tx, 1, &body)).await;
    answer.unwrap();
    assert_recorded_since(begun, seen.answered());
}

#[tokio::test]
async fn a10_calls_of_the_body_do_not_count() {
    let (store, body) = (MemoryStore::new(), Body::new());
    leaf(&store, 1, 5, &body).await.unwrap();
    // The inner call is a replay, the outer one is not.
    let (answer, seen) = observe(parent(&store, 1, &body)).await;
    answer.unwrap();
    assert_eq!(seen.answered(), Some(Answered::FirstRun));
    // The other way round.
    let (answer, seen) = observe(parent(&store, 1, &body)).await;
    answer.unwrap();
    assert!(seen.replayed());
    assert_eq!(body.runs(), 2);
}

#[tokio::test]
async fn a10_the_first_call_counts_and_an_observer_inside_sees_its_own() {
    let (store, body) = (MemoryStore::new(), Body::new());
    leaf(&store, 1, 5, &body).await.unwrap();
    let both = async {
        let (_, inner) = observe(leaf(&store, 1, 5, &body)).await;
        leaf(&store, 2, 5, &body).await.unwrap();
        leaf(&store, 2, 5, &body).await.unwrap();
        inner
    };
    let (inner, outer) = observe(both).await;
    assert!(inner.replayed());
    assert_eq!(outer.answered(), Some(Answered::FirstRun));
}

#[tokio::test]
async fn a10_a_call_that_has_no_key_is_seen_as_none() {
    #[idempotent(key = "{name}", ttl = "1h", store = store)]
    async fn named(store: &MemoryStore, name: &str) -> Result<(), Failure> {
        Ok(())
    }
    let store = MemoryStore::new();
    let (answer, seen) = observe(named(&store, "")).await;
    answer.unwrap_err();
    assert_eq!(seen.answered(), None);
    assert_eq!(seen.record_id(), None);
    let ((), seen) = observe(async {}).await;
    assert_eq!(seen.answered(), None);
}
