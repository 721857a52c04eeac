//! Outcomes that cannot be recorded.

use std::collections::BTreeMap;

use serde::{Deserializer, Serializer};

use super::stores::on_every_store;
use super::*;

/// Stored in whole seconds, as `chrono::serde::ts_seconds` does; the loss is seen by `PartialEq`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    #[serde(serialize_with = "whole_seconds", deserialize_with = "seconds")]
    at_millis: u64,
}

fn whole_seconds<S: Serializer>(millis: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(*millis / 1000)
}

fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Ok(u64::deserialize(from)? * 1000)
}

/// A field that is not stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Session {
    id: u8,
    #[serde(skip)]
    token: String,
}

async fn what_cannot_be_recorded_runs_once<S: Store>(store: S) {
    // The cases wait for their leases at the same time.
    let nan = async {
        let error = ends_once(&store, 1, f64::NAN).await;
        assert!(error.unrecorded::<f64>().unwrap().is_nan());
    };
    let tuples = async {
        let map = BTreeMap::from([((1_u8, 2_u8), "x".to_owned())]);
        let error = ends_once(&store, 2, map.clone()).await;
        assert_eq!(error.unrecorded::<BTreeMap<(u8, u8), String>>(), Some(map));
    };
    let lossy = async {
        let error = ends_once(
            &store,
            3,
            Receipt {
                at_millis: 1_234_567,
            },
        )
        .await;
        let at_millis = 1_234_000;
        assert_eq!(error.unrecorded::<Receipt>(), Some(Receipt { at_millis }));
    };
    let skipped = async {
        let token = "t".to_owned();
        let error = ends_once(&store, 4, Session { id: 7, token }).await;
        assert_eq!(
            error.unrecorded::<Session>().map(|session| session.id),
            Some(7)
        );
    };
    tokio::join!(nan, tuples, lossy, skipped);
}

on_every_store! {
    what_cannot_be_recorded_runs_once,
}

/// A final error that does not serialise stays the function's own answer, and is final.
#[derive(Debug, Serialize, Deserialize)]
enum Refusal {
    #[serde(skip)]
    Idem(Error),
    #[serde(skip)]
    Sql(String),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

#[idempotent(
    crate = ::idem_runtime, key = "{no}", ttl = "1h", store = store, lease = "1s",
    scope = "ended.fails", record_err = all,
)]
async fn fails<S: Store>(store: &S, no: u64, body: &Body) -> Result<(), Refusal> {
    body.run().await;
    Err(Refusal::Sql("connection lost".to_owned()))
}

async fn a_final_error_that_cannot_be_recorded_runs_once<S: Store>(store: S) {
    let body = Body::new();
    let first = fails(&store, 1, &body).await;
    assert!(matches!(&first, Err(Refusal::Sql(text)) if text == "connection lost"));
    tokio::time::sleep(LEASE * 3 / 2).await;
    let again = fails(&store, 1, &body).await;
    let Err(Refusal::Idem(again)) = again else {
        panic!("{again:?}");
    };
    assert_eq!(again.kind(), ErrorKind::OutcomeGone);
    assert_eq!(body.runs(), 1);
}

on_every_store! {
    a_final_error_that_cannot_be_recorded_runs_once,
}

/// MariaDB takes no packet above 16 MiB; the outcome is smaller than the operation allows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_above_the_servers_own_limit_runs_once_on_mariadb() {
    let (_database, store) = stores::mariadb().await;
    let body = Body::new();
    let value = "x".repeat(17 << 20);
    let first = gives(&store, 1, value.clone(), &body).await.unwrap_err();
    let first = first.idem();
    assert_eq!(first.effect(), Effect::Done, "{first}");
    assert_eq!(first.retry(), Retry::Never, "{first}");
    assert_eq!(
        first.unrecorded::<String>().map(|value| value.len()),
        Some(17 << 20)
    );
    let mut kind = None;
    // The marker may be recorded in the background.
    for _ in 0..20 {
        tokio::time::sleep(LEASE).await;
        match gives(&store, 1, String::new(), &body).await {
            Err(again) if again.idem().kind() == ErrorKind::OutcomeGone => {
                kind = Some(again.idem().kind());
                break;
            }
            // Answered from what waits to be recorded.
            Ok(again) => assert_eq!(again.len(), 17 << 20),
            Err(again) => assert_eq!(again.idem().kind(), ErrorKind::InProgress, "{again}"),
        }
    }
    assert_eq!(kind, Some(ErrorKind::OutcomeGone));
    assert_eq!(body.runs(), 1);
}
