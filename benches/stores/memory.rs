//! One caller, nothing but memory: nanoseconds and allocations.

use std::future::Future;
use std::hint::black_box;
use std::time::{Duration, Instant};

use idem::bytes::Bytes;
use idem::clock::Moment;
use idem::fingerprint::{Fingerprint, FingerprintBuilder};
use idem::key::RecordId;
use idem::outcome::{CodecId, decode_ok, encode_ok};
use idem::store::memory::MemoryStore;
use idem::store::tiered::{Front as _, MemoryFront, Tiered};
use idem::store::{Kept, Request, Reserved, Store as _, Until};
use idem::{idempotent, observe};
use idem_benches::median;
use quick_cache::sync::Cache;
use serde::{Deserialize, Serialize};
use stats_alloc::Region;

use crate::ALLOCATOR;

pub(crate) const TITLE: &str = "memory: replay, one caller";

const CALLS: u64 = 100_000;
const RECORDED: u64 = 1000;

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
struct Order {
    id: u64,
    merchant: String,
    note: String,
}

fn order(n: u64) -> Order {
    Order {
        id: n,
        merchant: "merchant-7".into(),
        note: "x".repeat(140),
    }
}

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Failure(#[from] idem::Error);

type Store = Tiered<MemoryFront, MemoryStore>;

#[idempotent(
    key = "order:merchant-7:{n}",
    ttl = "7d",
    store = "store",
    scope = "bench.front"
)]
async fn create(store: &Store, n: u64) -> Result<Order, Failure> {
    Ok(order(n))
}

fn id(n: u64) -> RecordId {
    RecordId::new("", "bench", &[], &n.to_string())
}

fn payload() -> Fingerprint {
    let mut payload = FingerprintBuilder::new();
    payload.part(&7);
    payload.finish().expect("a digest")
}

/// Nanoseconds and allocations of one call.
async fn measure<F: Future>(call: impl Fn(u64) -> F) -> (f64, f64) {
    let region = Region::new(ALLOCATOR);
    let begun = Instant::now();
    for n in 0..CALLS {
        // Not in the order in which they were put there.
        black_box(call(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).await);
    }
    let nanos = begun.elapsed().as_secs_f64() * 1e9 / CALLS as f64;
    let allocations = region.change().allocations as f64 / CALLS as f64;
    (nanos, allocations)
}

pub(crate) async fn compare(rounds: usize) {
    let outcome = encode_ok(&order(1), CodecId::Json, 0, None).expect("an outcome");
    let ids: Vec<RecordId> = (0..RECORDED).map(id).collect();
    let of = |n: u64| ids[(n % RECORDED) as usize];
    let (bare, front) = (
        Cache::<RecordId, Bytes>::new(10_000),
        MemoryFront::new(64 << 20),
    );
    let kept = Kept::new(payload(), outcome.clone(), Some(Moment::from_millis(1)));
    for id in &ids {
        bare.insert(*id, Bytes::copy_from_slice(&outcome));
        front.put(*id, &kept, Until::FOREVER).await.expect("a copy");
    }
    let store = Tiered::new(front.clone(), MemoryStore::new());
    for _ in 0..2 {
        for n in 0..RECORDED {
            create(&store, n).await.expect("a record");
        }
    }
    let (replay, seen) = observe(create(&store, 1)).await;
    assert!(replay.is_ok() && seen.replayed());

    let payload = kept.fingerprint;
    let mut samples: [Vec<(f64, f64)>; 6] = Default::default();
    for round in 0..=rounds {
        let measured = [
            measure(async |n| bare.get(&of(n))).await,
            measure(async |n| front.get(of(n)).await).await,
            measure(async |n| {
                let found = front.get(of(n)).await.ok().flatten();
                found.filter(|found| found.fingerprint.matches(payload))
            })
            .await,
            measure(async |n| {
                let request = Request::new(of(n), payload, Duration::from_secs(1));
                match store.reserve(&request).await {
                    Ok(Reserved::Completed { outcome, .. }) => outcome,
                    other => unreachable!("{other:?}"),
                }
            })
            .await,
            measure(async |_| decode_ok::<Order>(&outcome)).await,
            measure(async |n| create(&store, n % RECORDED).await).await,
        ];
        if round > 0 {
            for (samples, measured) in samples.iter_mut().zip(measured) {
                samples.push(measured);
            }
        }
    }
    let names = [
        "bare get of the cache",
        "front: get",
        "front: get, payload compared",
        "front before a store: a request answered",
        "decoding the outcome alone (JSON, 190 bytes)",
        "whole call of an annotated function: key, digests, look-up, decoding",
    ];
    println!("\n### {TITLE}, {rounds} rounds of {CALLS} calls\n");
    println!("| what | ns | × bare get | allocations |");
    println!("|---|---|---|---|");
    let base = median(samples[0].iter().map(|sample| sample.0));
    for (name, samples) in names.iter().zip(&samples) {
        let nanos = median(samples.iter().map(|sample| sample.0));
        let allocations = median(samples.iter().map(|sample| sample.1));
        println!(
            "| {name} | {nanos:.0} | {:.1} | {allocations:.1} |",
            nanos / base
        );
    }
}
