//! With a lease, on every store: a body that has ended is never run again, whatever becomes of its
//! outcome and of its caller.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod outcomes;
mod recording;
mod stores;

use std::time::Duration;

use idem_macros::idempotent;
use idem_runtime::store::Store;
use idem_runtime::{Effect, Error, ErrorKind, Retry};
use idem_test_support::Body;
use serde::{Deserialize, Serialize};

/// Longer than a slow machine takes from one renewal to the next.
const LEASE: Duration = Duration::from_millis(1_000);

#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
enum Failure {
    #[error(transparent)]
    #[serde(skip)]
    Idem(#[from] Error),
}

impl Failure {
    fn idem(&self) -> &Error {
        let Self::Idem(error) = self;
        error
    }
}

/// Gives what it is given, which is no part of the payload.
#[idempotent(
    crate = ::idem_runtime, key = "{no}", ttl = "1h", store = store, lease = "1s", wait = "20s",
    fingerprint = none, scope = "ended.gives", max_outcome = "64MiB",
)]
async fn gives<S: Store, T>(store: &S, no: u64, value: T, body: &Body) -> Result<T, Failure>
where
    T: Serialize + for<'de> Deserialize<'de> + PartialEq + Send,
{
    body.run().await;
    Ok(value)
}

/// The first call says that its effect is done and gives the value; later ones, also those after the
/// lease, say that the outcome is gone. The body runs once.
async fn ends_once<S: Store, T>(store: &S, no: u64, value: T) -> Error
where
    T: Serialize + for<'de> Deserialize<'de> + PartialEq + Clone + Send,
{
    let body = Body::new();
    let first = gives(store, no, value.clone(), &body).await;
    let Err(Failure::Idem(first)) = first else {
        panic!("recorded");
    };
    assert_eq!(first.kind(), ErrorKind::OutcomeNotRecordable, "{first}");
    assert_eq!(
        (first.effect(), first.retry()),
        (Effect::Done, Retry::Never)
    );
    for pause in [Duration::ZERO, LEASE * 3 / 2, LEASE] {
        tokio::time::sleep(pause).await;
        let again = gives(store, no, value.clone(), &body).await;
        let Err(Failure::Idem(again)) = again else {
            panic!("replayed");
        };
        assert_eq!(again.kind(), ErrorKind::OutcomeGone, "{again}");
        assert_eq!(again.effect(), Effect::Done);
    }
    assert_eq!(body.runs(), 1);
    first
}
