//! Every caller gets one answer, the first one included, whatever the outcome's type derives and
//! whatever its stored form leaves out.

use idem::{Effect, ErrorKind, MemoryStore, idempotent};
use idem_test_support::Body;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sqlx::{SqlitePool, SqliteTransaction};

use crate::support::{Failure, Fresh, committed, write};

/// Stored in whole seconds, as `chrono::serde::ts_seconds` does.
mod whole_seconds {
    use super::*;

    pub(super) fn serialize<S: Serializer>(millis: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(*millis / 1000)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        Ok(u64::deserialize(from)? * 1000)
    }
}

/// Stored in capitals.
fn capitals<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&text.to_uppercase())
}

/// Without `PartialEq`: only its stored form can be compared.
#[derive(Debug, Serialize, Deserialize)]
struct Receipt {
    #[serde(with = "whole_seconds")]
    at_millis: u64,
    #[serde(serialize_with = "capitals")]
    name: String,
    #[serde(skip)]
    secret: u64,
}

impl Receipt {
    fn new() -> Self {
        Self {
            at_millis: 1_234_567,
            name: "zoë".to_owned(),
            secret: 7,
        }
    }

    fn parts(&self) -> (u64, &str, u64) {
        (self.at_millis, &self.name, self.secret)
    }
}

const STORED: (u64, &str, u64) = (1_234_000, "ZOË", 0);

#[idempotent(key = "{no}", ttl = "1h", store = tx)]
async fn in_transaction(
    tx: &mut SqliteTransaction<'_>,
    no: u64,
    body: &Body,
) -> Result<Receipt, Failure> {
    write(tx, "receipt").await?;
    body.run().await;
    Ok(Receipt::new())
}

#[idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx)]
async fn in_own_transaction(pool: &SqlitePool, no: u64, body: &Body) -> Result<Receipt, Failure> {
    write(tx, "receipt").await?;
    body.run().await;
    Ok(Receipt::new())
}

#[idempotent(key = "{no}", ttl = "1h", store = store)]
async fn with_lease(store: &MemoryStore, no: u64, body: &Body) -> Result<Receipt, Failure> {
    body.run().await;
    Ok(Receipt::new())
}

#[tokio::test]
async fn the_first_caller_gets_what_a_replay_gives_in_the_callers_transaction() {
    let (fresh, body) = (Fresh::new().await, Body::new());
    for _ in 0..2 {
        let answer = committed!(fresh, tx => in_transaction(tx, 1, &body)).unwrap();
        assert_eq!(answer.parts(), STORED);
    }
    assert_eq!((body.runs(), fresh.effects().await), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_equal_calls_at_once_get_one_answer_in_the_frameworks_transaction() {
    let (fresh, body) = (Fresh::new().await, Body::new());
    let calls = (0..40).map(|_| in_own_transaction(&fresh.pool, 1, &body));
    for answer in futures_util::future::join_all(calls).await {
        assert_eq!(answer.unwrap().parts(), STORED);
    }
    assert_eq!((body.runs(), fresh.effects().await), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_equal_calls_at_once_get_one_answer_with_a_lease() {
    let (store, body) = (MemoryStore::new(), Body::new());
    let calls = (0..40).map(|_| with_lease(&store, 1, &body));
    for answer in futures_util::future::join_all(calls).await {
        assert_eq!(answer.unwrap().parts(), STORED);
    }
    assert_eq!(body.runs(), 1);
}

#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
enum Refusal {
    #[error(transparent)]
    #[serde(skip)]
    Idem(#[from] idem::Error),
    #[error("declined until {until}")]
    Declined {
        #[serde(with = "whole_seconds")]
        until: u64,
    },
}

impl Refusal {
    fn is_final(&self) -> bool {
        matches!(self, Self::Declined { .. })
    }
}

#[idempotent(key = "{no}", ttl = "1h", store = store, record_err = Refusal::is_final)]
async fn declines(store: &MemoryStore, no: u64) -> Result<(), Refusal> {
    Err(Refusal::Declined { until: 1_234_567 })
}

#[tokio::test]
async fn a_final_error_is_the_same_for_the_first_caller() {
    let store = MemoryStore::new();
    for _ in 0..2 {
        let refused = declines(&store, 1).await.unwrap_err();
        assert_eq!(refused.to_string(), "declined until 1234000");
    }
}

/// With `PartialEq` the loss is seen, and the outcome refused.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Compared {
    #[serde(with = "whole_seconds")]
    at_millis: u64,
}

#[idempotent(key = "{no}", ttl = "1h", store = tx)]
async fn compared(tx: &mut SqliteTransaction<'_>, no: u64) -> Result<Compared, Failure> {
    write(tx, "compared").await?;
    Ok(Compared {
        at_millis: 1_234_567,
    })
}

#[tokio::test]
async fn a_loss_that_the_type_itself_sees_is_refused_before_the_commit() {
    let fresh = Fresh::new().await;
    let error = committed!(fresh, tx => compared(tx, 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeNotRecordable);
    assert_eq!(error.effect(), Effect::None);
    assert!(error.to_string().contains("ts_seconds"), "{error}");
    assert_eq!(fresh.effects().await, 0);
}
