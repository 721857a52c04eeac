//! A service function that is idempotent by its key and guarded by the state.

use std::sync::Arc;

use idem::idempotent;
use idem::machine::{Progress, RequireError};
use serde::{Deserialize, Serialize};
use sqlx::Transaction;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::db::{Db, Shop, write};
use crate::fixture::{Status, orders};

#[derive(Debug, thiserror::Error)]
enum PayError {
    #[error(transparent)]
    Idem(#[from] idem::Error),
    #[error(transparent)]
    State(#[from] RequireError<Status>),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Answer {
    Paid,
    PaidBefore,
}

/// Two channels may confirm one order: each notice has a key of its own.
#[idempotent(key = "notice:{notice}", ttl = "1d", store = tx)]
async fn confirm(
    tx: &mut Transaction<'_, Db>,
    notice: &str,
    order: i64,
) -> Result<Answer, PayError> {
    write(tx, format!("audit {notice}")).await;
    match orders().require(tx, order, Status::Paid).await? {
        Progress::Now => {
            write(tx, format!("shipped {order}")).await;
            Ok(Answer::Paid)
        }
        Progress::Before => Ok(Answer::PaidBefore),
    }
}

async fn call(shop: &Shop, notice: &str, order: i64) -> Result<Answer, PayError> {
    let mut tx = shop.pool.begin().await.unwrap();
    let answer = confirm(&mut tx, notice, order).await?;
    tx.commit().await.unwrap();
    Ok(answer)
}

#[tokio::test]
async fn sm_03_a_repeat_with_another_key_is_a_success() {
    let shop = Shop::open().await;
    shop.order(1, "pending").await;
    assert_eq!(call(&shop, "return page", 1).await.unwrap(), Answer::Paid);
    assert_eq!(call(&shop, "notice", 1).await.unwrap(), Answer::PaidBefore);
    // With the same key it is the recorded answer, whatever the state is by now.
    assert_eq!(call(&shop, "return page", 1).await.unwrap(), Answer::Paid);
    assert_eq!(
        shop.lines().await,
        ["audit notice", "audit return page", "shipped 1"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn msg_05_both_channels_leave_their_audit_row_and_the_order_is_paid_once() {
    let shop = Arc::new(Shop::open().await);
    for order in 0..40 {
        shop.order(order, "pending").await;
        let barrier = Arc::new(Barrier::new(2));
        let mut calls = JoinSet::new();
        for channel in ["a", "b"] {
            let (shop, barrier) = (Arc::clone(&shop), Arc::clone(&barrier));
            calls.spawn(async move {
                barrier.wait().await;
                call(&shop, &format!("{channel}{order}"), order)
                    .await
                    .unwrap()
            });
        }
        let answers = calls.join_all().await;
        assert!(answers.contains(&Answer::Paid), "{answers:?}");
        assert!(answers.contains(&Answer::PaidBefore), "{answers:?}");
    }
    let lines = shop.lines().await;
    let count = |of: &str| lines.iter().filter(|line| line.starts_with(of)).count();
    assert_eq!((count("audit"), count("shipped")), (80, 40));
}

#[tokio::test]
async fn a_refusal_leaves_nothing_and_may_be_repeated_in_another_state() {
    let shop = Shop::open().await;
    shop.order(1, "closed").await;
    let refused = call(&shop, "late", 1).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "`closed` cannot become `paid`: that is allowed from `pending`"
    );
    assert!(shop.lines().await.is_empty());
    shop.run("UPDATE shop_order SET status = 'pending'").await;
    assert_eq!(call(&shop, "late", 1).await.unwrap(), Answer::Paid);
}
