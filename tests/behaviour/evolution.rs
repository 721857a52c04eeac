//! Types that change between deployments, under one fixed scope.

use idem::{Effect, ErrorKind, MemoryStore, Retry};
use idem_test_support::Body;
use serde::{Deserialize, Serialize};

/// One build of a service: its types, and its two functions.
macro_rules! build {
    (
        $module:ident, schema = $schema:literal, codec = $codec:literal,
        { $($field:tt)* }, { $($value:tt)* }, $no:ty, $shown:expr
    ) => {
        mod $module {
            use super::*;

            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            pub(super) struct Receipt { $($field)* }

            #[derive(Debug, thiserror::Error, Serialize, Deserialize)]
            pub(super) enum Failure {
                #[error(transparent)]
                #[serde(skip)]
                Idem(#[from] idem::Error),
                #[error("declined")]
                Declined { no: $no },
            }

            #[idem::idempotent(
                key = "{no}", ttl = "1h", store = store, scope = "ser-12", shared_scope, fingerprint = none,
                schema = $schema, codec = $codec
            )]
            pub(super) async fn pay(
                store: &MemoryStore,
                no: u64,
                body: &Body,
            ) -> Result<Receipt, Failure> {
                body.run().await;
                Ok(Receipt { $($value)* })
            }

            #[idem::idempotent(
                key = "{no}", ttl = "1h", store = store, scope = "ser-12.err", shared_scope, fingerprint = none,
                schema = $schema, codec = $codec, record_err = all
            )]
            pub(super) async fn declines(
                store: &MemoryStore,
                no: u64,
                body: &Body,
            ) -> Result<u8, Failure> {
                body.run().await;
                let shown: fn(u64) -> $no = $shown;
                Err(Failure::Declined { no: shown(no) })
            }

            /// The framework's error of a call that must not have been answered.
            pub(super) fn refusal<T: std::fmt::Debug>(answer: Result<T, Failure>) -> idem::Error {
                match answer {
                    Err(Failure::Idem(error)) => error,
                    other => panic!("{other:?}"),
                }
            }
        }
    };
}

build!(v1, schema = 1, codec = "json", { pub(super) id: u64 }, { id: 7 }, u64, |no| no);
build!(
    v2, schema = 2, codec = "json",
    { pub(super) id: u64, pub(super) currency: String },
    { id: 7, currency: "EUR".to_owned() }, u64, |no| no
);
build!(
    v2_with_default, schema = 2, codec = "msgpack",
    { pub(super) id: u64, #[serde(default)] pub(super) currency: String },
    { id: 7, currency: "EUR".to_owned() }, u64, |no| no
);
build!(
    v3, schema = 3, codec = "json",
    { pub(super) id: String }, { id: "7".to_owned() }, String, |no| no.to_string()
);

/// Names both versions, and is no reason to run.
fn assert_undecodable(error: &idem::Error, recorded: u32, here: u32) {
    assert_eq!(error.kind(), ErrorKind::OutcomeUndecodable);
    assert_eq!(error.retry(), Retry::Never);
    let text = error.to_string();
    assert!(text.contains("ser-12"), "{text}");
    for version in [recorded, here] {
        let version = format!("schema version {version}");
        assert!(text.contains(&version), "{version} is not in: {text}");
    }
}

#[tokio::test]
async fn ser_12_a_newer_type_reads_older_records_or_says_so() {
    let (store, body) = (MemoryStore::new(), Body::new());
    v1::pay(&store, 1, &body).await.unwrap();

    let error = v2::refusal(v2::pay(&store, 1, &body).await);
    assert_undecodable(&error, 1, 2);
    assert_eq!(error.effect(), Effect::Done);
    assert!(error.to_string().contains("currency"), "{error}");
    let error = v3::refusal(v3::pay(&store, 1, &body).await);
    assert_undecodable(&error, 1, 3);
    assert!(!error.to_string().contains("`7`"), "no data: {error}");

    let read = v2_with_default::pay(&store, 1, &body).await.unwrap();
    assert_eq!((read.id, &*read.currency), (7, ""));
    assert_eq!(v1::pay(&store, 1, &body).await.unwrap().id, 7);
    assert_eq!(body.runs(), 1);
}

#[tokio::test]
async fn ser_12_an_older_type_reads_newer_records_or_says_so() {
    let (store, body) = (MemoryStore::new(), Body::new());
    v2::pay(&store, 1, &body).await.unwrap();
    v2_with_default::pay(&store, 2, &body).await.unwrap();
    v3::pay(&store, 3, &body).await.unwrap();
    // A field that it does not know is passed over.
    assert_eq!(v1::pay(&store, 1, &body).await.unwrap().id, 7);
    assert_eq!(v1::pay(&store, 2, &body).await.unwrap().id, 7);
    let error = v1::refusal(v1::pay(&store, 3, &body).await);
    assert_undecodable(&error, 3, 1);
    let error = v2_with_default::refusal(v2_with_default::pay(&store, 3, &body).await);
    assert_undecodable(&error, 3, 2);
    assert_eq!(body.runs(), 3);
}

#[tokio::test]
async fn ser_12_errors_that_changed_are_told_in_both_directions() {
    let (store, body) = (MemoryStore::new(), Body::new());
    v1::declines(&store, 1, &body).await.unwrap_err();
    v3::declines(&store, 2, &body).await.unwrap_err();
    let same = v2::declines(&store, 1, &body).await;
    assert!(matches!(same, Err(v2::Failure::Declined { no: 1 })));
    let same = v2_with_default::declines(&store, 1, &body).await;
    let expected = matches!(same, Err(v2_with_default::Failure::Declined { no: 1 }));
    assert!(expected, "in another codec too");
    let error = v3::refusal(v3::declines(&store, 1, &body).await);
    assert_undecodable(&error, 1, 3);
    let error = v1::refusal(v1::declines(&store, 2, &body).await);
    assert_undecodable(&error, 3, 1);
    assert_eq!(body.runs(), 2);
}
