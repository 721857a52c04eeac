//! How many items run at the same time, and what does not fit into the batch's record.

use std::sync::atomic::{AtomicUsize, Ordering};

use idem::batch::Batch;
use idem::{MemoryStore, idempotent, observe};

use crate::support::{DAY, Failure, items, kinds};

#[derive(Default)]
struct Gauge {
    now: AtomicUsize,
    most: AtomicUsize,
}

#[idempotent(key = "{no}", ttl = "1d", store = store, companion = measure_call, fingerprint = none)]
async fn measure(store: &MemoryStore, no: u64, gauge: &Gauge) -> Result<u64, Failure> {
    let now = gauge.now.fetch_add(1, Ordering::SeqCst) + 1;
    gauge.most.fetch_max(now, Ordering::SeqCst);
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    gauge.now.fetch_sub(1, Ordering::SeqCst);
    Ok(no)
}

#[tokio::test]
async fn no_more_items_run_at_once_than_are_allowed_and_no_fewer() {
    for (allowed, most) in [(0, 1), (1, 1), (3, 3), (100, 20)] {
        let (store, gauge) = (MemoryStore::new(), Gauge::default());
        let list = items(0..20);
        let report = Batch::new("measure", "a", DAY)
            .concurrency(allowed)
            .each(
                &store,
                &list,
                |item| measure_call(&item.no),
                |item| measure(&store, item.no, &gauge),
            )
            .await;
        assert!(report.unwrap().is_finished());
        assert_eq!(gauge.most.load(Ordering::SeqCst), most, "{allowed}");
    }
}

#[idempotent(key = "{no}", ttl = "1d", store = store, companion = odd_call, codec = "msgpack")]
async fn odd(store: &MemoryStore, no: u64) -> Result<f64, Failure> {
    Ok(f64::INFINITY)
}

/// JSON has no infinity: the batch is answered from its items.
#[tokio::test]
async fn what_the_batch_cannot_record_its_items_have() {
    let store = MemoryStore::new();
    for expected in ["nn", "rr"] {
        let (report, _) =
            observe(
                Batch::new("odd", 7_u64, DAY)
                    .each(&store, &[1, 2], odd_call, |no| odd(&store, *no)),
            )
            .await;
        let report = report.unwrap();
        assert_eq!(kinds(&report), expected);
        assert_eq!(report.outcomes[0].value(), Some(&f64::INFINITY));
    }
}
