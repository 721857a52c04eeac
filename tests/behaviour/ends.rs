//! What becomes of a call with a lease that does not come to its end.

use std::time::Duration;

use idem::testing::clock::TokioClock;
use idem::testing::fault::{Fault, Faulty, Step};
use idem::{ErrorKind, MemoryStore, idempotent, store::Store as _};
use idem_test_support::Body;
use tokio::time::{sleep, timeout};

use crate::support::Failure;

const LEASE: Duration = Duration::from_millis(200);

type Store = Faulty<MemoryStore>;

fn store() -> Store {
    Faulty::new(MemoryStore::builder().clock(TokioClock::new()).build())
}

macro_rules! service {
    ($name:ident $(, $argument:ident = $value:expr)?) => {
        #[idempotent(
            key = "{no}", fingerprint = none, ttl = "1h", store = store, lease = "200ms", reject
            $(, $argument = $value)?
        )]
        async fn $name(
            store: &Store,
            no: u64,
            time: Duration,
            body: &Body,
        ) -> Result<usize, Failure> {
            sleep(time).await;
            Ok(body.run().await)
        }
    };
}

service!(plain);
service!(explicit, on_cancel = "hold");
service!(releasing, on_cancel = "release");
service!(rerunning, on_crash = "rerun");
service!(holding, on_crash = "hold");
service!(cancelling, on_lost_lease = "cancel");
service!(continuing, on_lost_lease = "continue");

/// A call that is dropped midway.
macro_rules! dropped {
    ($service:ident, $store:expr, $body:expr) => {
        let midway = timeout(LEASE, $service($store, 1, LEASE * 10, $body)).await;
        assert!(midway.is_err());
        tokio::task::yield_now().await;
    };
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_holds_its_key_unless_it_releases() {
    let (store, body) = (store(), Body::new());
    dropped!(plain, &store, &body);
    let error = plain(&store, 1, Duration::ZERO, &body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InProgress);

    dropped!(explicit, &store, &body);
    let error = explicit(&store, 1, Duration::ZERO, &body)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InProgress);

    dropped!(releasing, &store, &body);
    assert_eq!(
        releasing(&store, 1, Duration::ZERO, &body).await.unwrap(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_lapsed_reservation_is_taken_over_unless_it_is_held() {
    let (store, body) = (store(), Body::new());
    dropped!(rerunning, &store, &body);
    dropped!(holding, &store, &body);
    sleep(LEASE * 2).await;
    assert_eq!(
        rerunning(&store, 1, Duration::ZERO, &body).await.unwrap(),
        1
    );
    let (answer, seen) = idem::observe(holding(&store, 1, Duration::ZERO, &body)).await;
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Abandoned);
    // Somebody has found out that nothing happened.
    assert!(store.forget(seen.record_id().unwrap()).await.unwrap());
    assert_eq!(holding(&store, 1, Duration::ZERO, &body).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_lost_its_lease_is_dropped_unless_it_continues() {
    let (store, body) = (store(), Body::new());
    store.always(Step::Renew, Fault::Before);
    let error = cancelling(&store, 1, LEASE * 3, &body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseExpired);
    assert_eq!(body.runs(), 0);
    // Nobody else came: the late outcome counts.
    assert_eq!(continuing(&store, 1, LEASE * 3, &body).await.unwrap(), 1);
    assert_eq!(continuing(&store, 1, LEASE * 3, &body).await.unwrap(), 1);
}
