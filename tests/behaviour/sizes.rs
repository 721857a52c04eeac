//! Outcomes that are larger than their operation records: refused, or remembered without their value,
//! and never a reason to run again.

use std::sync::Mutex;

use idem::{Effect, Error, ErrorKind, MemoryStore, Retry, idempotent, observe};
use idem_test_support::Body;
use sqlx::{SqlitePool, SqliteTransaction};

use crate::support::{Failure, Fresh, committed, write};

/// As JSON two bytes more.
fn text(bytes: usize) -> String {
    "x".repeat(bytes - 2)
}

fn assert_gone(answer: Result<String, Failure>) {
    let failure = answer.unwrap_err();
    assert_eq!(failure.kind(), ErrorKind::OutcomeGone);
    assert_eq!(failure.effect(), Effect::Done);
    assert_eq!(failure.idem().retry(), Retry::Never);
}

#[idempotent(key = "{no}", ttl = "1h", store = store, fingerprint(no), max_outcome = "1KiB")]
async fn refused(
    store: &MemoryStore,
    no: u64,
    bytes: usize,
    body: &Body,
) -> Result<String, Failure> {
    body.run().await;
    Ok(text(bytes))
}

#[idempotent(
    key = "{no}", ttl = "1h", store = store, fingerprint(no), max_outcome = 100B,
    oversize = "tombstone", record_err = all
)]
async fn remembered(
    store: &MemoryStore,
    no: u64,
    bytes: usize,
    body: &Body,
) -> Result<String, Failure> {
    body.run().await;
    if no == 13 {
        return Err(Failure::Declined(text(bytes)));
    }
    Ok(text(bytes))
}

#[idempotent(key = "{no}", ttl = "1h", store = store, fingerprint(no))]
async fn by_default(store: &MemoryStore, no: u64, bytes: usize) -> Result<String, Failure> {
    Ok(text(bytes))
}

#[tokio::test]
async fn a11_with_a_lease_too_large_is_refused_with_the_value_and_does_not_run_again() {
    let (store, body) = (MemoryStore::new(), Body::new());
    assert_eq!(refused(&store, 1, 1024, &body).await.unwrap().len(), 1022);
    let failure = refused(&store, 2, 1025, &body).await.unwrap_err();
    assert_eq!(failure.kind(), ErrorKind::OutcomeTooLarge);
    assert_eq!(failure.effect(), Effect::Done);
    let error: &Error = failure.idem();
    assert_eq!(error.retry(), Retry::Never);
    assert_eq!(error.unrecorded::<String>(), Some(text(1025)));
    assert!(
        error.to_string().contains("1025 bytes, at most 1024"),
        "{error}"
    );
    for _ in 0..2 {
        assert_gone(refused(&store, 2, 10, &body).await);
    }
    assert_eq!(body.runs(), 2);
}

#[tokio::test]
async fn a11_a_tombstone_answers_the_first_caller_and_tells_the_others() {
    let (store, body) = (MemoryStore::new(), Body::new());
    assert_eq!(remembered(&store, 1, 101, &body).await.unwrap(), text(101));
    let (answer, seen) = observe(remembered(&store, 1, 101, &body)).await;
    assert_gone(answer);
    assert!(!seen.replayed());
    // An error has no value to be remembered without.
    let failure = remembered(&store, 13, 200, &body).await.unwrap_err();
    assert_eq!(failure.kind(), ErrorKind::OutcomeTooLarge);
    assert_gone(remembered(&store, 13, 200, &body).await);
    assert_eq!(body.runs(), 2);
}

#[tokio::test]
async fn a11_by_default_it_is_a_mebibyte() {
    let store = MemoryStore::new();
    by_default(&store, 1, 1 << 20).await.unwrap();
    let failure = by_default(&store, 2, (1 << 20) + 1).await.unwrap_err();
    assert_eq!(failure.kind(), ErrorKind::OutcomeTooLarge);
}

#[idempotent(key = "{no}", ttl = "1h", store = tx, max_outcome = "100B")]
async fn refused_in(
    tx: &mut SqliteTransaction<'_>,
    no: u64,
    body: &Body,
) -> Result<String, Failure> {
    write(tx, "refused").await?;
    body.run().await;
    Ok(text(101))
}

#[idempotent(key = "{no}", ttl = "1h", store = tx, max_outcome = "100B", oversize = tombstone)]
async fn remembered_in(
    tx: &mut SqliteTransaction<'_>,
    no: u64,
    body: &Body,
) -> Result<String, Failure> {
    write(tx, "remembered").await?;
    body.run().await;
    Ok(text(101))
}

#[tokio::test]
async fn a11_in_a_transaction_too_large_is_refused_before_the_commit() {
    let (fresh, body) = (Fresh::new().await, Body::new());
    let mut tx = fresh.begin().await;
    let failure = refused_in(&mut tx, 1, &body).await.unwrap_err();
    assert_eq!(failure.kind(), ErrorKind::OutcomeTooLarge);
    assert_eq!(failure.effect(), Effect::None);
    assert_eq!(failure.idem().unrecorded::<String>(), None);
    // Who commits all the same cannot.
    tx.commit().await.unwrap_err();
    assert_eq!(fresh.effects().await, 0);

    let first = committed!(fresh, tx => remembered_in(tx, 1, &body));
    assert_eq!(first.unwrap(), text(101));
    for _ in 0..2 {
        assert_gone(committed!(fresh, tx => remembered_in(tx, 1, &body)));
    }
    assert_eq!((body.runs(), fresh.effects().await), (2, 1));
}

/// What is done in the end.
#[derive(Default)]
struct Log(Mutex<Vec<String>>);

struct Shop {
    pool: SqlitePool,
    log: Log,
}

impl Shop {
    #[idempotent(key = "{no}", ttl = "1h", store = self.pool, tx = tx, max_outcome = "100B")]
    async fn refused(&self, no: u64) -> Result<String, Failure> {
        write(tx, "refused").await?;
        Ok(text(101))
    }

    #[idempotent(
        key = "{no}", ttl = "1h", store = self.pool, tx = tx, max_outcome = "100B",
        oversize = "tombstone"
    )]
    async fn remembered(&self, no: u64) -> Result<String, Failure> {
        write(tx, "remembered").await?;
        tokio::task::yield_now().await;
        self.log.0.lock().unwrap().push("run".to_owned());
        Ok(text(101))
    }
}

#[tokio::test]
async fn a11_in_the_frameworks_transaction_too() {
    let fresh = Fresh::new().await;
    let shop = Shop {
        pool: fresh.pool.clone(),
        log: Log::default(),
    };
    let failure = shop.refused(1).await.unwrap_err();
    assert_eq!(failure.kind(), ErrorKind::OutcomeTooLarge);
    assert_eq!(failure.effect(), Effect::None);
    assert_eq!(fresh.effects().await, 0);

    let (first, second) = tokio::join!(shop.remembered(1), shop.remembered(1));
    assert_eq!(first.unwrap(), text(101));
    assert_gone(second);
    assert_gone(shop.remembered(1).await);
    assert_eq!(fresh.effects().await, 1);
    assert_eq!(shop.log.0.lock().unwrap().len(), 1);
}
