//! Calls whose future is dropped.

use std::time::Duration;

use idem::observe;
use idem_test_support::{Body, poll::drop_after};
use tokio::task::JoinSet;

use super::{
    calls::{effects, pay},
    db::Fresh,
};
use crate::support::{Receipt, order};

/// Longer than the framework's own pauses, shorter than its wait for a running call.
const NOT_STUCK: Duration = Duration::from_secs(20);

#[tokio::test]
async fn tx_06_a_call_that_is_dropped_at_any_await_leaves_the_key_usable() {
    let database = Fresh::new().await;
    // Every answer of the database is late, so that the call is pending at each of them.
    let (_late, pool) = database.slow_pool(2).await;
    let (mut ran_again, mut finished) = (0, 0);
    for no in 0..2000 {
        // How many polls a call takes differs from run to run, so that more rounds meet more awaits.
        let polls = no as usize % 25;
        let body = Body::new();
        let first = drop_after(pay(&pool, order(no), &body), polls).await;
        let again = observe(pay(&pool, order(no), &body));
        let (again, seen) = tokio::time::timeout(NOT_STUCK, again).await.unwrap();
        let again = again.unwrap();
        // Of several runs only the last one counts: it is the one that is replayed, or was run now.
        assert_eq!(again.run, body.runs(), "dropped after {polls} polls");
        assert_eq!(effects(&pool, no).await, 1, "dropped after {polls} polls");
        ran_again += usize::from(body.runs() == 2 && !seen.replayed());
        let (third, seen) = observe(pay(&pool, order(no), &body)).await;
        assert_eq!(third.unwrap(), again);
        assert!(seen.replayed());
        if let Some(first) = first {
            assert_eq!(first.unwrap(), again);
            finished += 1;
        }
        if no >= 50 && finished > 0 && ran_again > 0 {
            return;
        }
    }
    panic!("{finished} calls finished, {ran_again} were dropped inside their transaction");
}

#[tokio::test]
async fn tx_06_the_next_in_line_goes_first_when_the_first_is_dropped() {
    let database = Fresh::new().await;
    let pool = database.pool(5).await;
    let body = Body::held();
    let call = || {
        let (pool, body) = (pool.clone(), body.clone());
        async move { pay(&pool, order(1), &body).await }
    };
    let first = tokio::spawn(call());
    body.started(1).await;
    let mut others = JoinSet::new();
    for _ in 0..20 {
        others.spawn(call());
    }
    tokio::task::yield_now().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    body.started(2).await;
    assert_eq!(body.runs(), 2, "only one of those who waited goes first");
    body.release();
    for answer in others.join_all().await {
        assert_eq!(answer.unwrap(), Receipt { no: 1, run: 2 });
    }
    assert_eq!(effects(&pool, 1).await, 1);
}

#[tokio::test]
async fn ip_14_one_of_those_who_wait_may_go_away() {
    let database = Fresh::new().await;
    let pool = database.pool(2).await;
    let body = Body::held();
    let call = || {
        let (pool, body) = (pool.clone(), body.clone());
        async move { pay(&pool, order(1), &body).await }
    };
    let first = tokio::spawn(call());
    body.started(1).await;
    assert!(drop_after(call(), 1).await.is_none());
    let waiting = tokio::spawn(call());
    tokio::task::yield_now().await;
    waiting.abort();
    let last = tokio::spawn(call());
    body.release();
    assert_eq!(first.await.unwrap().unwrap().run, 1);
    assert_eq!(last.await.unwrap().unwrap().run, 1);
}
