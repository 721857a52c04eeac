//! The whole transaction again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use idem_runtime::retry::{GaveUp, RetryPolicy, retry_transaction};
use idem_runtime::version::VersionError;
use sqlx::Postgres;

use crate::shop::{balance, on_each, postgres, row};

on_each! {
    concurrent_increments_lose_none
    sm_06_a_retry_stops_at_a_row_that_is_gone
    the_number_of_attempts_is_bounded
    the_time_is_bounded
    each_attempt_is_a_fresh_transaction
}

macro_rules! concurrent_increments_lose_none {
    ($pool:ident, $db:ty) => {
        use idem_runtime::retry::{RetryPolicy, retry_transaction};
        use idem_runtime::version::VersionError;
        let update = std::sync::Arc::new(crate::shop::balance::<$db>());
        let policy = RetryPolicy::default()
            .attempts(10_000)
            .budget(std::time::Duration::from_secs(60));
        let mut tasks = Vec::new();
        for _ in 0..12 {
            let (pool, update) = ($pool.clone(), update.clone());
            // In a task of its own: the future is `Send`.
            tasks.push(tokio::spawn(async move {
                let update = &update;
                for _ in 0..10 {
                    retry_transaction(&pool, policy, |mut tx| async move {
                        let (balance, version) = crate::shop::row!(&mut **tx, 1);
                        tokio::task::yield_now().await;
                        update
                            .apply(&mut tx, 1_i64, version.unwrap(), (balance + 1,))
                            .await?;
                        Ok::<_, VersionError>(())
                    })
                    .await
                    .unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(crate::shop::row!(&$pool, 1), (220, Some(123)));
    };
}
use concurrent_increments_lose_none;

macro_rules! sm_06_a_retry_stops_at_a_row_that_is_gone {
    ($pool:ident, $db:ty) => {
        use idem_runtime::retry::{RetryPolicy, retry_transaction};
        use idem_runtime::version::VersionError;
        let update = &crate::shop::balance::<$db>();
        let gone = retry_transaction(&$pool, RetryPolicy::default(), |mut tx| async move {
            update.apply(&mut tx, 99_i64, 3, (1_i64,)).await
        });
        let gone = gone.await.unwrap_err();
        assert_eq!(gone.attempts, 1);
        assert!(matches!(gone.error, VersionError::NotFound), "{gone:?}");
    };
}
use sm_06_a_retry_stops_at_a_row_that_is_gone;

macro_rules! the_number_of_attempts_is_bounded {
    ($pool:ident, $db:ty) => {
        use idem_runtime::retry::{RetryPolicy, retry_transaction};
        use idem_runtime::version::VersionError;
        let update = &crate::shop::balance::<$db>();
        let mut runs = 0;
        let policy = RetryPolicy::default().attempts(4);
        let stale = retry_transaction(&$pool, policy, |mut tx| {
            runs += 1;
            // Not read inside the transaction: stale for ever.
            async move { update.apply(&mut tx, 1_i64, 2, (1_i64,)).await }
        });
        let stale = stale.await.unwrap_err();
        assert_eq!((stale.attempts, runs), (4, 4));
        assert!(matches!(stale.error, VersionError::Conflict { .. }));
        assert!(stale.to_string().ends_with("(attempt 4)"), "{stale}");
    };
}
use the_number_of_attempts_is_bounded;

macro_rules! the_time_is_bounded {
    ($pool:ident, $db:ty) => {
        use idem_runtime::retry::{RetryPolicy, retry_transaction};
        use std::time::{Duration, Instant};
        let update = &crate::shop::balance::<$db>();
        let policy = RetryPolicy::default()
            .attempts(u32::MAX)
            .budget(Duration::from_millis(300));
        let begun = Instant::now();
        let stale = retry_transaction(&$pool, policy, |mut tx| async move {
            update.apply(&mut tx, 1_i64, 2, (1_i64,)).await
        });
        let stale = stale.await.unwrap_err();
        assert!(stale.attempts > 1, "{stale:?}");
        assert!(begun.elapsed() < Duration::from_secs(5));
    };
}
use the_time_is_bounded;

macro_rules! each_attempt_is_a_fresh_transaction {
    ($pool:ident, $db:ty) => {
        use idem_runtime::retry::{RetryPolicy, retry_transaction};
        use idem_runtime::version::VersionError;
        let update = &crate::shop::balance::<$db>();
        let mut runs = 0;
        let done = retry_transaction(&$pool, RetryPolicy::default(), |mut tx| {
            runs += 1;
            async move {
                let (balance, version) = crate::shop::row!(&mut **tx, 2);
                // Nothing of an earlier attempt is left.
                assert_eq!((balance, version), (100, Some(3)));
                update.apply(&mut tx, 2_i64, 3, (50_i64,)).await?;
                let second = if runs < 3 { 2 } else { 3 };
                update.apply(&mut tx, 1_i64, second, (150_i64,)).await?;
                Ok::<_, VersionError>(balance)
            }
        });
        assert_eq!(done.await.unwrap(), 100);
        assert_eq!(runs, 3);
        assert_eq!(crate::shop::row!(&$pool, 2), (50, Some(4)));
    };
}
use each_attempt_is_a_fresh_transaction;

#[tokio::test]
async fn a_serialization_failure_at_any_statement_is_run_again() {
    let (pool, _keep) = postgres().await;
    let update = Arc::new(balance::<Postgres>());
    let runs = Arc::new(AtomicU32::new(0));
    let tasks = (0..8).map(|_| {
        let (pool, update, runs) = (pool.clone(), update.clone(), runs.clone());
        tokio::spawn(async move {
            let policy = RetryPolicy::default()
                .attempts(10_000)
                .budget(Duration::from_secs(60));
            let (update, runs) = (&update, &runs);
            retry_transaction(&pool, policy, |mut tx| async move {
                runs.fetch_add(1, Ordering::Relaxed);
                sqlx::query("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
                    .execute(&mut **tx)
                    .await?;
                let (sum, version) = row!(&mut **tx, 1);
                tokio::time::sleep(Duration::from_millis(5)).await;
                update
                    .apply(&mut tx, 1_i64, version.unwrap(), (sum + 1,))
                    .await
            })
            .await
            .map(|_| ())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap().unwrap();
    }
    assert_eq!(row!(&pool, 1), (108, Some(11)));
    assert!(runs.load(Ordering::Relaxed) > 8);
}

#[tokio::test]
async fn a_deadlock_is_run_again() {
    let (pool, _keep) = postgres().await;
    let met = Arc::new(tokio::sync::Barrier::new(2));
    let tasks = [(1, 2), (2, 1)].map(|(first, second)| {
        let (pool, met) = (pool.clone(), met.clone());
        tokio::spawn(async move {
            let mut tries = 0;
            retry_transaction(&pool, RetryPolicy::default(), |mut tx| {
                tries += 1;
                let met = &met;
                async move {
                    for id in [first, second] {
                        let add = "UPDATE account SET balance = balance + 1 WHERE id = $1";
                        sqlx::query(add).bind(id).execute(&mut **tx).await?;
                        if tries == 1 && id == first {
                            met.wait().await;
                        }
                    }
                    Ok::<_, sqlx::Error>(())
                }
            })
            .await
            .unwrap();
            tries
        })
    });
    let mut tries = 0;
    for task in tasks {
        tries += task.await.unwrap();
    }
    assert_eq!(tries, 3);
    assert_eq!((row!(&pool, 1).0, row!(&pool, 2).0), (102, 102));
}

#[tokio::test]
async fn a_swallowed_error_is_no_commit() {
    let (pool, _keep) = postgres().await;
    let begun = Instant::now();
    let done = retry_transaction(&pool, RetryPolicy::default(), |mut tx| async move {
        let update = balance::<Postgres>();
        update.apply(&mut tx, 1_i64, 3, (1_i64,)).await?;
        let _ = sqlx::query("SELECT 1 / 0").execute(&mut **tx).await;
        Ok::<_, VersionError>("all is well")
    });
    let GaveUp { error, .. } = done.await.unwrap_err();
    assert!(matches!(error, VersionError::Database(_)), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(row!(&pool, 1), (100, Some(3)));
}
