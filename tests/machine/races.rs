//! Two calls on one row.

use std::sync::Arc;

use idem::machine::Transitioned;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::db::{Shop, write};
use crate::fixture::{Job, Status, jobs, orders};

const ROUNDS: i64 = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sm_01_of_two_transitions_one_wins_500_times() {
    let shop = Arc::new(Shop::open().await);
    let jobs = jobs();
    let mut won = [0; 2];
    for id in 0..ROUNDS {
        shop.order(id, "started").await;
        let barrier = Arc::new(Barrier::new(2));
        let mut calls = JoinSet::new();
        for to in [Job::Succeeded, Job::Expired] {
            let (shop, jobs, barrier) = (Arc::clone(&shop), jobs.clone(), Arc::clone(&barrier));
            calls.spawn(async move {
                let mut tx = shop.pool.begin().await.unwrap();
                barrier.wait().await;
                let done = jobs.apply(&mut tx, id, to).await.unwrap();
                if done.is_applied() {
                    write(&mut tx, format!("{id}")).await;
                }
                tx.commit().await.unwrap();
                (to, done)
            });
        }
        let mut answers = calls.join_all().await;
        answers.sort_by_key(|(_, done)| !done.is_applied());
        let [(winner, first), (_, second)] = answers.as_slice() else {
            panic!("two calls, two answers");
        };
        assert!(matches!(
            first,
            Transitioned::Applied {
                from: Some(Job::Started),
                ..
            }
        ));
        assert!(
            matches!(second, Transitioned::Refused { current, .. } if current == winner),
            "{second:?} after {winner:?}"
        );
        assert_eq!(shop.row(id).await.0, winner.as_str());
        won[usize::from(*winner == Job::Expired)] += 1;
    }
    assert_eq!(shop.lines().await.len() as i64, ROUNDS);
    assert_eq!(won[0] + won[1], ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sm_03_of_equal_transitions_one_is_applied_and_the_others_are_there_already() {
    let shop = Arc::new(Shop::open().await);
    let orders = orders();
    for id in 0..30 {
        shop.order(id, "pending").await;
        let barrier = Arc::new(Barrier::new(6));
        let mut calls = JoinSet::new();
        for _ in 0..6 {
            let (shop, orders, barrier) = (Arc::clone(&shop), orders.clone(), Arc::clone(&barrier));
            calls.spawn(async move {
                let mut tx = shop.pool.begin().await.unwrap();
                barrier.wait().await;
                let done = orders.apply(&mut tx, id, Status::Paid).await.unwrap();
                tx.commit().await.unwrap();
                done
            });
        }
        let answers = calls.join_all().await;
        let applied = answers.iter().filter(|done| done.is_applied()).count();
        let there = answers
            .iter()
            .filter(|done| **done == Transitioned::AlreadyThere)
            .count();
        assert_eq!((applied, there), (1, 5), "{answers:?}");
        assert_eq!(shop.row(id).await.1, 1, "the version");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_one_who_waits_wins_when_the_first_rolls_back() {
    let shop = Arc::new(Shop::open().await);
    shop.order(1, "pending").await;
    let mut first = shop.pool.begin().await.unwrap();
    assert!(
        orders()
            .apply(&mut first, 1_i64, Status::Paid)
            .await
            .unwrap()
            .is_applied()
    );
    let second = tokio::spawn({
        let shop = Arc::clone(&shop);
        async move {
            let mut conn = shop.pool.acquire().await.unwrap();
            orders()
                .apply(&mut conn, 1_i64, Status::Cancelled)
                .await
                .unwrap()
        }
    });
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    first.rollback().await.unwrap();
    assert!(second.await.unwrap().is_applied());
    assert_eq!(shop.row(1).await, ("closed".to_owned(), 1, None));
}

/// A job that goes round and round is always found in a state, and never counted twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_comes_to_an_allowed_state_meanwhile_is_tried_again() {
    let shop = Arc::new(Shop::open().await);
    shop.order(1, "queued").await;
    let mut calls = JoinSet::new();
    for to in [Job::Started, Job::Queued] {
        let shop = Arc::clone(&shop);
        calls.spawn(async move {
            let (jobs, mut applied) = (jobs(), 0);
            let mut conn = shop.pool.acquire().await.unwrap();
            for _ in 0..200 {
                match jobs.apply(&mut conn, 1_i64, to).await.unwrap() {
                    Transitioned::Applied { .. } => applied += 1,
                    Transitioned::AlreadyThere => {}
                    other => panic!("{other:?}"),
                }
            }
            applied
        });
    }
    let applied: Vec<i32> = calls.join_all().await;
    assert!((applied[0] - applied[1]).abs() <= 1, "{applied:?}");
}
