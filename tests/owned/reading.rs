//! Where duplicates are common the record is read before a transaction is begun: with equal answers.

use std::time::Duration;

use idem::{Answered, ErrorKind, idempotent, observe};
use idem_test_support::Body;

use super::{
    calls::{effects, write},
    db::{Fresh, Pool},
};
use crate::support::{Failure, Order, Receipt, order};

/// More than enough duplicates for the operation to read first.
pub(crate) const MANY: usize = 30;

#[idempotent(key = "{order.no}", ttl = "1h", store = pool, tx = tx)]
async fn often(pool: &Pool, order: Order, body: &Body) -> Result<Receipt, Failure> {
    write(tx, &order).await?;
    let run = body.run().await;
    Ok(Receipt { no: order.no, run })
}

async fn repeat(pool: &Pool, no: u64, body: &Body) {
    for _ in 0..MANY {
        let (answer, seen) = observe(often(pool, order(no), body)).await;
        answer.unwrap();
        assert!(seen.replayed());
        assert!(matches!(
            seen.answered(),
            Some(Answered::Replay {
                recorded_at: Some(_)
            })
        ));
    }
}

#[tokio::test]
async fn f2_first_runs_among_many_repeats_are_correct() {
    let database = Fresh::new().await;
    let pool = database.pool(3).await;
    for no in 1..=3 {
        let body = Body::new();
        let (answer, seen) = observe(often(&pool, order(no), &body)).await;
        assert_eq!(answer.unwrap(), Receipt { no, run: 1 });
        assert_eq!(seen.answered(), Some(Answered::FirstRun));
        repeat(&pool, no, &body).await;
        assert_eq!(body.runs(), 1);
        assert_eq!(effects(&pool, no).await, 1);
    }
}

#[tokio::test]
async fn a8_another_payload_is_refused_by_reading_too() {
    let database = Fresh::new().await;
    let pool = database.pool(3).await;
    let body = Body::new();
    often(&pool, order(1), &body).await.unwrap();
    repeat(&pool, 1, &body).await;
    let other = Order { no: 1, cents: 501 };
    let error = often(&pool, other, &body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FingerprintMismatch);
    repeat(&pool, 1, &body).await;
    assert_eq!(body.runs(), 1);
}

#[idempotent(key = "{no}", ttl = Duration::from_millis(ttl), store = pool, tx = tx)]
async fn short(pool: &Pool, no: u64, ttl: u64, body: &Body) -> Result<usize, Failure> {
    write(tx, &order(no)).await?;
    Ok(body.run().await)
}

/// Sets the record's end back instead of waiting for it.
async fn expire(pool: &Pool) {
    // Of either kind of column: an early time in Postgres, an early number in SQLite.
    let early = "UPDATE idem_record SET expires_at = created_at";
    sqlx::query(early).execute(pool).await.unwrap();
}

#[tokio::test]
async fn ttl_05_a_record_whose_time_is_over_is_not_replayed() {
    let database = Fresh::new().await;
    let pool = database.pool(3).await;
    let body = Body::new();
    for round in 1..=3 {
        // The first repeats find the record by inserting, the later ones by reading.
        for _ in 0..MANY {
            assert_eq!(short(&pool, 1, 60_000, &body).await.unwrap(), round);
        }
        assert_eq!(body.runs(), round);
        assert_eq!(effects(&pool, 1).await, round as i64);
        expire(&pool).await;
    }
}

#[tokio::test]
async fn ttl_05_a_record_ends_by_itself() {
    let database = Fresh::new().await;
    let pool = database.pool(2).await;
    let body = Body::new();
    assert_eq!(short(&pool, 1, 300, &body).await.unwrap(), 1);
    assert_eq!(short(&pool, 1, 300, &body).await.unwrap(), 1);
    // The database's clock runs on; nothing else makes the record end.
    tokio::time::sleep(Duration::from_millis(350)).await;
    let (answer, seen) = observe(short(&pool, 1, 300, &body)).await;
    assert_eq!(answer.unwrap(), 2);
    assert_eq!(seen.answered(), Some(Answered::FirstRun));
}
