//! `#[idempotent]` beside other attributes and wrappers: counted, not only compiled.

use std::future::Future;

use idem::{MemoryStore, idempotent, observe};
use idem_test_support::Body;

use crate::support::Failure;

/// What a retry attribute makes of a call: up to three tries.
async fn retrying<T, F: Future<Output = Result<T, Failure>>>(
    mut call: impl FnMut() -> F,
) -> Result<T, Failure> {
    for _ in 0..2 {
        if let Ok(value) = call().await {
            return Ok(value);
        }
    }
    call().await
}

/// A retry attribute outside: it wraps the whole idempotent function.
macro_rules! retry_outside {
    ($name:ident, $inner:ident) => {
        async fn $name(store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
            retrying(|| $inner(store, no, body)).await
        }
    };
}

async fn third_time(body: &Body) -> Result<usize, Failure> {
    match body.run().await {
        run @ 3.. => Ok(run),
        _ => Err(Failure::Busy),
    }
}

#[idempotent(key = "{no}", ttl = "1h", store = store)]
async fn one_try(store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
    third_time(body).await
}

retry_outside!(outside, one_try);

/// A retry inside: it wraps the body.
#[idempotent(key = "{no}", ttl = "1h", store = store)]
async fn inside(store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
    retrying(|| third_time(body)).await
}

#[tokio::test]
async fn mac_18_a_retry_outside_is_one_reservation_for_each_try() {
    let (store, body) = (MemoryStore::new(), Body::new());
    let (answer, seen) = observe(outside(&store, 1, &body)).await;
    assert_eq!(answer.unwrap(), 3);
    assert!(!seen.replayed());
    assert_eq!(body.runs(), 3);
    // Without the retry the tries are the caller's, and the key is free after each.
    let (store, body) = (MemoryStore::new(), Body::new());
    for run in 1..=2 {
        assert!(one_try(&store, 1, &body).await.is_err());
        assert_eq!((body.runs(), store.len()), (run, 0));
    }
    assert_eq!(outside(&store, 1, &body).await.unwrap(), 3);
    // Afterwards every try is a replay, and the first one ends it.
    assert_eq!(outside(&store, 1, &body).await.unwrap(), 3);
    assert_eq!(body.runs(), 3);
}

#[tokio::test]
async fn mac_18_a_retry_inside_is_one_reservation_for_all_tries() {
    let (store, body) = (MemoryStore::new(), Body::held());
    let first = tokio::spawn({
        let (store, body) = (store.clone(), body.clone());
        async move { inside(&store, 1, &body).await }
    });
    body.started(1).await;
    let waiting = tokio::spawn({
        let (store, body) = (store.clone(), body.clone());
        async move { observe(inside(&store, 1, &body)).await }
    });
    tokio::task::yield_now().await;
    body.release();
    assert_eq!(first.await.unwrap().unwrap(), 3);
    // The one that waits does not come between two tries.
    let (answer, seen) = waiting.await.unwrap();
    assert_eq!(answer.unwrap(), 3);
    assert!(seen.replayed());
    assert_eq!(body.runs(), 3);
}

#[tracing::instrument(skip_all)]
#[idempotent(key = "{no}", ttl = "1h", store = store)]
async fn traced_above(store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[idempotent(key = "{no}", ttl = "1h", store = store)]
#[tracing::instrument(skip_all, fields(no))]
async fn traced_below(store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[async_trait::async_trait]
trait Service {
    async fn above(&self, store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure>;
    async fn below(&self, store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure>;
}

struct Shop;

#[async_trait::async_trait]
impl Service for Shop {
    #[tracing::instrument(skip_all)]
    #[idempotent(key = "{no}", ttl = "1h", store = store)]
    async fn above(&self, store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
        assert_eq!(no, 1);
        Ok(body.run().await)
    }

    #[idempotent(key = "{no}", ttl = "1h", store = store)]
    #[tracing::instrument(skip_all)]
    async fn below(&self, store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
        Ok(body.run().await)
    }
}

/// The annotated function written by a macro.
macro_rules! written {
    ($name:ident($no:ident), $key:literal) => {
        #[idempotent(key = $key, ttl = "1h", store = store)]
        async fn $name(store: &MemoryStore, $no: u64, body: &Body) -> Result<usize, Failure> {
            Ok(body.run().await)
        }
    };
}

written!(by_macro(no), "{no}");

#[tokio::test]
async fn mac_18_tracing_and_async_trait_above_and_below_run_the_body_once() {
    let store = MemoryStore::new();
    let bodies: [Body; 5] = std::array::from_fn(|_| Body::new());
    for replayed in [false, true] {
        let seen = [
            observe(traced_above(&store, 1, &bodies[0])).await,
            observe(traced_below(&store, 1, &bodies[1])).await,
            observe(Shop.above(&store, 1, &bodies[2])).await,
            observe(Shop.below(&store, 1, &bodies[3])).await,
            observe(by_macro(&store, 1, &bodies[4])).await,
        ];
        for (at, (answer, seen)) in seen.into_iter().enumerate() {
            assert_eq!(answer.unwrap(), 1, "{at}");
            assert_eq!(seen.replayed(), replayed, "{at}");
        }
    }
    assert!(bodies.iter().all(|body| body.runs() == 1));
    assert_eq!(store.len(), 5);
}
