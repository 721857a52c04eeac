//! How long outcomes are kept.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use std::time::Duration;

use idem::{
    Effect, ErrorKind, MemoryStore, Retry,
    clock::{Clock, Moment},
    idempotent, observe,
    retention::MAX_RETENTION,
    store::Store,
};
use idem_test_support::Body;
use sqlx::SqliteTransaction;

use crate::support::{Failure, Fresh, committed};

/// A clock that stands until it is put forward.
#[derive(Clone, Default)]
struct Standing(Arc<AtomicU64>);

impl Clock for Standing {
    fn now(&self) -> Moment {
        Moment::from_millis(1_700_000_000_000 + self.0.load(Ordering::SeqCst))
    }
}

impl Standing {
    fn forward(&self, by: Duration) {
        let millis = u64::try_from(by.as_millis()).unwrap();
        self.0.fetch_add(millis, Ordering::SeqCst);
    }

    fn store(&self) -> MemoryStore {
        MemoryStore::builder().clock(self.clone()).build()
    }
}

struct Service {
    store: MemoryStore,
    keep: Duration,
}

impl Service {
    #[idempotent(key = "{no}", ttl = self.keep, store = self.store, lease = "1s")]
    async fn pay(&self, no: u64, body: &Body) -> Result<usize, Failure> {
        Ok(body.run().await)
    }

    #[idempotent(key = "{no}", ttl = "never", store = self.store)]
    async fn forever(&self, no: u64, body: &Body) -> Result<usize, Failure> {
        Ok(body.run().await)
    }

    #[idempotent(key = "{no}", ttl = "1m30s", store = self.store)]
    async fn literal(&self, no: u64, body: &Body) -> Result<usize, Failure> {
        Ok(body.run().await)
    }
}

fn service(keep: Duration) -> (Standing, Service) {
    let clock = Standing::default();
    let store = clock.store();
    (clock, Service { store, keep })
}

#[tokio::test]
async fn ttl_02_an_outcome_is_replayed_to_the_millisecond() {
    for keep in [
        Duration::from_millis(900),
        Duration::from_millis(1500),
        Duration::from_secs(90),
    ] {
        let ((clock, service), body) = (service(keep), Body::new());
        let millisecond = Duration::from_millis(1);
        assert_eq!(service.pay(1, &body).await.unwrap(), 1);
        clock.forward(keep - millisecond);
        assert_eq!(service.pay(1, &body).await.unwrap(), 1);
        clock.forward(millisecond);
        assert_eq!(service.pay(1, &body).await.unwrap(), 2, "{keep:?}");
    }
    let ((clock, service), body) = (service(Duration::ZERO), Body::new());
    assert_eq!(service.literal(1, &body).await.unwrap(), 1);
    clock.forward(Duration::from_millis(89_999));
    assert_eq!(service.literal(1, &body).await.unwrap(), 1);
    clock.forward(Duration::from_millis(1));
    assert_eq!(service.literal(1, &body).await.unwrap(), 2);
}

#[tokio::test]
async fn ttl_never_is_never() {
    let ((clock, service), body) = (service(Duration::ZERO), Body::new());
    service.forever(1, &body).await.unwrap();
    clock.forward(Duration::from_secs(86_400 * 365 * 1000));
    let (answer, seen) = observe(service.forever(1, &body)).await;
    assert_eq!(answer.unwrap(), 1);
    assert!(seen.replayed());
    assert_eq!(service.store.purge(100).await.unwrap(), 0);
}

#[tokio::test]
async fn ttl_01_and_03_what_is_no_retention_is_refused_before_the_body() {
    for keep in [
        Duration::ZERO,
        Duration::from_nanos(1),
        MAX_RETENTION + Duration::from_nanos(1),
        Duration::from_secs(u64::MAX),
        Duration::MAX,
    ] {
        let ((_, service), body) = (service(keep), Body::new());
        let error = service.pay(1, &body).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidTtl, "{keep:?}");
        assert_eq!(error.effect(), Effect::None);
        assert_eq!(error.idem().retry(), Retry::Never);
        assert_eq!((body.runs(), service.store.len()), (0, 0));
    }
    let ((clock, service), body) = (service(MAX_RETENTION), Body::new());
    service.pay(1, &body).await.unwrap();
    clock.forward(MAX_RETENTION - Duration::from_millis(1));
    assert_eq!(service.pay(1, &body).await.unwrap(), 1);
}

#[tokio::test]
async fn ttl_05_a_purge_makes_no_difference() {
    for purges in [false, true] {
        let ((clock, service), body) = (service(Duration::from_secs(1)), Body::new());
        service.pay(1, &body).await.unwrap();
        clock.forward(Duration::from_millis(1500));
        let id = {
            let (_, seen) = observe(service.literal(9, &body)).await;
            seen.record_id().unwrap()
        };
        if purges {
            assert_eq!(service.store.purge(100).await.unwrap(), 1);
        }
        assert!(service.store.lookup(id).await.unwrap().is_some());
        let (answer, seen) = observe(service.pay(1, &body)).await;
        assert_eq!(answer.unwrap(), 3);
        assert!(!seen.replayed());
        let (answer, seen) = observe(service.pay(1, &body)).await;
        assert_eq!(answer.unwrap(), 3);
        assert!(seen.replayed());
    }
}

#[idempotent(key = "{no}", ttl = keep, store = tx, fingerprint = none)]
async fn kept(
    tx: &mut SqliteTransaction<'_>,
    no: u64,
    keep: Duration,
    body: &Body,
) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[tokio::test]
async fn ttl_02_the_database_keeps_it_to_the_millisecond() {
    let (fresh, body) = (Fresh::new().await, Body::new());
    for (no, keep) in [
        Duration::from_millis(900),
        Duration::from_millis(1),
        Duration::from_secs(90),
        MAX_RETENTION,
    ]
    .into_iter()
    .enumerate()
    {
        committed!(fresh, tx => kept(tx, no as u64, keep, &body)).unwrap();
        let millis: i64 = sqlx::query_scalar(
            "SELECT expires_at - completed_at FROM idem_record WHERE key_text = $1",
        )
        .bind(no.to_string())
        .fetch_one(&fresh.pool)
        .await
        .unwrap();
        assert_eq!(millis as u128, keep.as_millis());
    }
    let error = committed!(fresh, tx => kept(tx, 100, Duration::MAX, &body)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidTtl);
    assert_eq!(body.runs(), 4);
}

#[tokio::test]
async fn ttl_05_in_the_database_too_and_the_new_outcome_is_kept() {
    let (fresh, body) = (Fresh::new().await, Body::new());
    let keep = Duration::from_secs(60);
    committed!(fresh, tx => kept(tx, 1, keep, &body)).unwrap();
    for purges in [false, true] {
        let over = "UPDATE idem_record SET expires_at = created_at";
        sqlx::query(over).execute(&fresh.pool).await.unwrap();
        if purges {
            let records = idem::store::sql::Records::default();
            assert_eq!(records.purge(&fresh.pool, 100).await.unwrap(), 1);
        }
        let run = body.runs() + 1;
        for _ in 0..2 {
            let answer = committed!(fresh, tx => kept(tx, 1, keep, &body));
            assert_eq!(answer.unwrap(), run);
        }
    }
    assert_eq!(body.runs(), 3);
}

#[idempotent(
    key = "{no}", ttl = "7d", tombstone = "30d", store = store, fingerprint(no)
)]
async fn buried(store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[idempotent(
    key = "{no}", ttl = keep, tombstone = forever, store = store, fingerprint(no)
)]
async fn buried_for_ever(
    store: &MemoryStore,
    no: u64,
    keep: Duration,
    body: &Body,
) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[tokio::test]
async fn a12_a_tombstone_refuses_what_comes_after_the_retention() {
    const DAY: Duration = Duration::from_secs(86_400);
    let (clock, body, mut purged) = (Standing::default(), Body::new(), 0);
    let store = clock.store();
    buried(&store, 1, &body).await.unwrap();
    buried_for_ever(&store, 2, DAY * 7, &body).await.unwrap();
    clock.forward(DAY * 7 - Duration::from_millis(1));
    assert_eq!(buried(&store, 1, &body).await.unwrap(), 1);
    for wait in [1, 30 * 86_400_000 - 1] {
        clock.forward(Duration::from_millis(wait));
        for _ in 0..2 {
            let (answer, seen) = observe(buried(&store, 1, &body)).await;
            let failure = answer.unwrap_err();
            assert_eq!(failure.kind(), ErrorKind::OutcomeGone);
            assert_eq!(failure.effect(), Effect::Done);
            assert_eq!(failure.idem().retry(), Retry::Never);
            assert!(!seen.replayed());
            // The outcome goes once; the key stays.
            purged += store.purge(100).await.unwrap();
            assert_eq!((purged, store.len()), (2, 2));
        }
    }
    clock.forward(Duration::from_millis(1));
    assert_eq!(buried(&store, 1, &body).await.unwrap(), 3);
    clock.forward(MAX_RETENTION);
    let answer = buried_for_ever(&store, 2, DAY * 7, &body).await;
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::OutcomeGone);
    assert_eq!(body.runs(), 3);
}
