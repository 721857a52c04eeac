//! Killed with no chance to clean up, and run again.

use std::time::Duration;

use idem_examples::SplitMix64;

use crate::callbacks::Callbacks;
use crate::program::{orders, start_orders};
use crate::shop::{Kind, Shop};

pub(crate) async fn a_killed_run_is_finished_by_the_next(kind: Kind) {
    let callbacks = Callbacks::of_seed(5, 150).await;
    let all = callbacks.entries();
    let mut delays = SplitMix64::new(9);
    for concurrency in ["1", "16"] {
        let shop = kind.shop().await;
        let url = shop.url();
        let args = callbacks.args(&url, concurrency);
        // Each run is killed further on than the one before, on the same database.
        for percent in [0, 3, 10, 25, 50, 75, 90] {
            let mut run = start_orders(&args);
            reaches(&shop, all * percent / 100 + 1).await;
            tokio::time::sleep(Duration::from_micros(delays.between(0, 3000))).await;
            run.kill().await.unwrap();
            let status = run.wait().await.unwrap();
            assert_eq!(
                status.code(),
                None,
                "it ended before it was killed at {percent} %"
            );
            shop.quiet().await;
            shop.is_consistent().await;
        }
        let before = shop.entries().await;
        assert!(before < all, "{before} of {all}");
        let last = orders(&args).await;
        last.ended_with(0).says("expectation    met");
        assert_eq!(last.number("first runs"), all - before, "{last}");
        shop.has(&callbacks.expected).await;
    }
}

/// The server ends every connection again and again: bodies, records and commits are lost midway,
/// and of a commit nobody may have heard whether it held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_connections_are_nothing_the_caller_notices() {
    let callbacks = Callbacks::of_seed(7, 200).await;
    let shop = Kind::Postgres.shop().await;
    let url = shop.url();
    let args = callbacks.args(&url, "64");
    let run = orders(&args);
    tokio::pin!(run);
    let mut ended = 0;
    let mut cut_at = 1;
    let run = loop {
        tokio::select! {
            run = &mut run => break run,
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
        // Now and now again, but always with some progress in between.
        let entries = shop.entries().await;
        if entries >= cut_at {
            ended += shop.end_other_connections().await;
            cut_at = entries + callbacks.entries() / 30;
        }
    };
    run.ended_with(0).says("expectation    met");
    assert!(ended > 16, "{ended} is not even one pool of connections");
    shop.has(&callbacks.expected).await;
}

async fn reaches(shop: &Shop, entries: i64) {
    for _ in 0..30_000 {
        if shop.entries().await >= entries {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the ledger never has {entries} entries");
}
