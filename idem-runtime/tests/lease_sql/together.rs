//! Many equal calls in one process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idem_runtime::store::sql::LeasedSql;
use idem_runtime::store::sql::lease::LeaseDialect;
use idem_runtime::testing::replay;

use crate::support::{WAITING, call, mariadb, postgres, sqlite};

async fn thousand<D: LeaseDialect>(store: LeasedSql<D>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let report = replay::run(1000, || {
        let (store, runs) = (store.clone(), Arc::clone(&runs));
        async move {
            let body = || async {
                runs.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(100)).await;
                Ok(7)
            };
            call(&store, &WAITING, "same", body).await
        }
    })
    .await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(report.answers().count(), 1000);
    assert!(report.answers().all(|answer| matches!(answer, Ok(7))));
}

/// F5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f5_a_thousand_equal_calls_run_once() {
    let (_database, pool) = postgres().await;
    thousand(LeasedSql::new(pool)).await;
    let (_database, pool) = mariadb().await;
    thousand(LeasedSql::new(pool)).await;
    let (_file, pool) = sqlite().await;
    thousand(LeasedSql::new(pool)).await;
}
