//! An outcome that cannot be recorded: the database would commit the reservation all the same, so a marker
//! stands for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use idem_macros::idempotent;
use idem_runtime::{Effect, ErrorKind};
use sqlx::mysql::{MySqlPool, MySqlTransaction};

use crate::database::Database;
use crate::service::{Body, PayError};

#[derive(Clone, Copy, Debug)]
enum Gives {
    NaN,
    TooMuch,
    Panic,
}

#[idempotent(crate = ::idem_runtime, key = "{no}", fingerprint(no), ttl = "1h", max_outcome = "100B",
    store = "tx")]
async fn rate(
    tx: &mut MySqlTransaction<'_>,
    no: &str,
    gives: Gives,
    body: &Body,
) -> Result<Vec<f64>, PayError> {
    body.run(tx, no, 1).await?;
    match gives {
        Gives::NaN => Ok(vec![f64::NAN]),
        Gives::TooMuch => Ok(vec![0.5; 100]),
        Gives::Panic => panic!("on purpose"),
    }
}

#[idempotent(crate = ::idem_runtime, key = "{no}", fingerprint(no), ttl = "1h", max_outcome = "100B",
    store = "pool", tx = tx)]
async fn rate_alone(
    pool: &MySqlPool,
    no: &str,
    gives: Gives,
    body: &Body,
) -> Result<Vec<f64>, PayError> {
    body.run(tx, no, 1).await?;
    Ok(match gives {
        Gives::TooMuch => vec![0.5; 100],
        Gives::NaN | Gives::Panic => vec![f64::NAN],
    })
}

const KINDS: [(Gives, ErrorKind); 2] = [
    (Gives::NaN, ErrorKind::OutcomeNotRecordable),
    (Gives::TooMuch, ErrorKind::OutcomeTooLarge),
];

#[tokio::test]
async fn a_caller_who_commits_all_the_same_commits_a_marker() {
    for (gives, kind) in KINDS {
        let db = Database::fresh().await;
        let body = Body::default();
        let mut tx = db.pool.begin().await.unwrap();
        let error = rate(&mut tx, "1", gives, &body).await.unwrap_err();
        assert_eq!(error.kind(), kind);
        // It stands or falls with the caller's transaction.
        assert_eq!(error.idem().effect(), Effect::Unknown);
        tx.commit().await.unwrap();
        assert_eq!(db.orders().await, 1);
        let mut tx = db.pool.begin().await.unwrap();
        let error = rate(&mut tx, "1", gives, &body).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeGone);
        assert_eq!(error.idem().effect(), Effect::Done);
        tx.commit().await.unwrap();
        assert_eq!(
            (body.runs(), db.orders().await, db.records().await),
            (1, 1, 1)
        );
    }
}

#[tokio::test]
async fn after_a_roll_back_nothing_of_it_is_left() {
    for (gives, kind) in KINDS {
        let db = Database::fresh().await;
        let body = Body::default();
        for _ in 0..2 {
            let mut tx = db.pool.begin().await.unwrap();
            let error = rate(&mut tx, "1", gives, &body).await.unwrap_err();
            assert_eq!(error.kind(), kind);
            tx.rollback().await.unwrap();
        }
        assert_eq!(
            (body.runs(), db.orders().await, db.records().await),
            (2, 0, 0)
        );
    }
}

#[tokio::test]
async fn a_transaction_of_the_frameworks_own_is_rolled_back() {
    for (gives, kind) in KINDS {
        let db = Database::fresh().await;
        let body = Body::default();
        let error = rate_alone(&db.pool, "1", gives, &body).await.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert_eq!(error.idem().effect(), Effect::None);
        assert_eq!((db.orders().await, db.records().await), (0, 0));
    }
}

/// How far it came is not known: no marker says that it is done.
#[tokio::test]
async fn a_caught_panic_that_is_committed_is_abandoned() {
    let db = Database::fresh().await;
    let body = Body::default();
    let mut tx = db.pool.begin().await.unwrap();
    {
        let mut call = pin!(rate(&mut tx, "1", Gives::Panic, &body));
        let panicked = std::future::poll_fn(|cx| {
            match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx))) {
                Ok(polled) => polled.map(|_| false),
                Err(_) => Poll::Ready(true),
            }
        });
        assert!(panicked.await);
    }
    tx.commit().await.unwrap();
    let mut tx = db.pool.begin().await.unwrap();
    let error = rate(&mut tx, "1", Gives::NaN, &body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Abandoned);
    assert_eq!(error.idem().effect(), Effect::Unknown);
    assert!(
        !error.to_string().contains("nothing of it can be committed"),
        "{error}"
    );
    tx.rollback().await.unwrap();
    assert_eq!((body.runs(), db.orders().await), (1, 1));
}
