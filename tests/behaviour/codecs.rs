//! Both codecs, and one after the other.

use std::{collections::BTreeMap, net::IpAddr};

use idem::{ErrorKind, MemoryStore, idempotent};
use idem_test_support::Body;
use serde::{Deserialize, Serialize};

use crate::support::Failure;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Everything {
    unit: (),
    none: Option<Vec<u8>>,
    empty: Option<Vec<u8>>,
    bytes: Vec<u8>,
    text: String,
    float: f64,
    wide: u64,
    map: BTreeMap<u64, (bool, char)>,
    address: IpAddr,
    #[serde(flatten)]
    more: BTreeMap<String, i64>,
}

fn everything() -> Everything {
    Everything {
        unit: (),
        none: None,
        empty: Some(Vec::new()),
        bytes: vec![0xff, 0x00],
        text: "a\"b\u{0}é".to_owned(),
        float: 0.1 + 0.2,
        wide: u64::MAX,
        map: BTreeMap::from([(1, (true, 'x'))]),
        address: IpAddr::from([127, 0, 0, 1]),
        more: BTreeMap::from([("extra".to_owned(), -1)]),
    }
}

/// One function in two builds, the later one with another codec.
macro_rules! builds {
    ($module:ident, $codec:literal) => {
        mod $module {
            use super::*;

            #[idempotent(key = "{no}", ttl = "1h", store = store, scope = "codec", shared_scope, codec = $codec)]
            pub(super) async fn gives(
                store: &MemoryStore,
                no: u64,
                body: &Body,
            ) -> Result<Everything, Failure> {
                body.run().await;
                Ok(everything())
            }

            #[idempotent(
                key = "{no}", ttl = "1h", store = store, scope = "codec.error", shared_scope,
                codec = $codec, record_err = all
            )]
            pub(super) async fn fails(
                store: &MemoryStore,
                no: u64,
                body: &Body,
            ) -> Result<(), Failure> {
                body.run().await;
                Err(Failure::Declined("é\"".to_owned()))
            }

            #[idempotent(
                key = "{no}", ttl = "1h", store = store, scope = "codec.lost", shared_scope, codec = $codec,
                fingerprint = none
            )]
            pub(super) async fn loses(
                store: &MemoryStore,
                no: u64,
                value: Option<()>,
            ) -> Result<Option<()>, Failure> {
                Ok(value)
            }
        }
    };
}

builds!(json, "json");
builds!(msgpack, "msgpack");

#[tokio::test]
async fn ser_15_both_codecs_give_back_what_they_got() {
    let (store, body) = (MemoryStore::new(), Body::new());
    for run in 1..=2 {
        assert_eq!(json::gives(&store, 1, &body).await.unwrap(), everything());
        assert_eq!(
            msgpack::gives(&store, 2, &body).await.unwrap(),
            everything()
        );
        assert_eq!(body.runs(), 2, "run {run}");
    }
}

#[tokio::test]
async fn ser_15_a_changed_codec_still_reads_older_records() {
    let (store, body) = (MemoryStore::new(), Body::new());
    json::gives(&store, 1, &body).await.unwrap();
    msgpack::gives(&store, 2, &body).await.unwrap();
    json::fails(&store, 1, &body).await.unwrap_err();
    msgpack::fails(&store, 2, &body).await.unwrap_err();
    assert_eq!(body.runs(), 4);
    assert_eq!(
        msgpack::gives(&store, 1, &body).await.unwrap(),
        everything()
    );
    assert_eq!(json::gives(&store, 2, &body).await.unwrap(), everything());
    for error in [
        msgpack::fails(&store, 1, &body).await.unwrap_err(),
        json::fails(&store, 2, &body).await.unwrap_err(),
    ] {
        assert!(matches!(error, Failure::Declined(why) if why == "é\""));
    }
    assert_eq!(body.runs(), 4);
}

#[tokio::test]
async fn ser_15_what_a_codec_would_lose_is_refused_by_both() {
    let store = MemoryStore::new();
    let error = json::loses(&store, 1, Some(())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeNotRecordable);
    let error = msgpack::loses(&store, 2, Some(())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeNotRecordable);
    assert_eq!(json::loses(&store, 3, None).await.unwrap(), None);
    assert_eq!(msgpack::loses(&store, 4, None).await.unwrap(), None);
}
