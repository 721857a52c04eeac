//! What a large batch takes of the server's lock table (Postgres).

use idem::batch::Batch;
use idem::idempotent;
use sqlx::{Acquire as _, PgTransaction};

use crate::support::postgres::Fresh;
use crate::support::{DAY, Failure};

#[idempotent(key = "{no}", scope = "batch.large", ttl = "1d", store = tx, companion = large_call, fingerprint = none)]
async fn large(tx: &mut PgTransaction<'_>, no: u64) -> Result<u64, Failure> {
    Ok(no)
}

async fn locks(tx: &mut PgTransaction<'_>) -> i64 {
    let held =
        "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'";
    sqlx::query_scalar(held).fetch_one(&mut **tx).await.unwrap()
}

async fn send(tx: &mut PgTransaction<'_>, key: &str, items: std::ops::Range<u64>) {
    let items: Vec<u64> = items.collect();
    let report = Batch::new("large", key, DAY)
        .all_in(tx, &items, large_call, |mut tx, no| async move {
            large(&mut tx, *no).await
        })
        .await
        .unwrap();
    assert!(report.is_finished());
}

#[tokio::test]
async fn pg_11_a_large_batch_takes_one_lock_and_a_small_one_takes_one_for_each_item() {
    let fresh = Fresh::open().await;
    let mut tx = fresh.pool.begin().await.unwrap();
    send(&mut tx, "small", 0..64).await;
    assert_eq!(locks(&mut tx).await, 65);
    send(&mut tx, "large", 100..1100).await;
    assert_eq!(locks(&mut tx).await, 66);
    tx.commit().await.unwrap();
    // Replays of a large batch's items take none either.
    let mut tx = fresh.pool.begin().await.unwrap();
    send(&mut tx, "again", 500..1500).await;
    assert_eq!(locks(&mut tx).await, 1);
    let mut inner = tx.begin().await.unwrap();
    send(&mut inner, "inner", 2000..2100).await;
    inner.rollback().await.unwrap();
    tx.commit().await.unwrap();
    let rows = "SELECT count(*) FROM idem_record WHERE scope = 'batch.large'";
    let rows: i64 = sqlx::query_scalar(rows)
        .fetch_one(&fresh.pool)
        .await
        .unwrap();
    assert_eq!(rows, 64 + 1400);
}
