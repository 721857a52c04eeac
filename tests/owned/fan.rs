//! Many equal calls at once.

use std::sync::Arc;

use idem_test_support::{
    Body,
    child::{Args, say},
};
use tokio::{sync::Barrier, task::JoinSet};

use super::{
    calls::{effects, pay, records},
    db::{self, Fresh, Pool},
};
use crate::support::{Receipt, order};

idem_test_support::child_roles!(one_of_five);

/// `count` equal calls behind a barrier, each in a task of its own.
async fn storm(pool: &Pool, body: &Body, count: usize) -> Vec<Receipt> {
    let barrier = Arc::new(Barrier::new(count));
    let mut calls = JoinSet::new();
    for _ in 0..count {
        let (pool, body, barrier) = (pool.clone(), body.clone(), Arc::clone(&barrier));
        calls.spawn(async move {
            barrier.wait().await;
            pay(&pool, order(1), &body).await
        });
    }
    let answers = calls.join_all().await;
    answers.into_iter().map(|answer| answer.unwrap()).collect()
}

async fn a_thousand_on(connections: u32) {
    let database = Fresh::new().await;
    let pool = database.pool(connections).await;
    let body = Body::new();
    let answers = storm(&pool, &body, 1000).await;
    assert_eq!(answers, vec![Receipt { no: 1, run: 1 }; 1000]);
    assert_eq!(body.runs(), 1);
    assert_eq!(effects(&pool, 1).await, 1);
    assert_eq!(records(&pool).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f5_a_thousand_equal_calls_on_a_pool_of_five() {
    a_thousand_on(5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f5_a_thousand_equal_calls_on_a_pool_of_one() {
    a_thousand_on(1).await;
}

#[tokio::test]
async fn f5_a_thousand_equal_calls_on_a_runtime_of_one_thread() {
    a_thousand_on(5).await;
}

async fn one_of_five(args: Args) {
    let pool = db::pool_of(args.get(0), 5).await;
    let body = Body::new();
    args.line_up().await;
    for answer in storm(&pool, &body, 200).await {
        say(&format!("{answer:?}"));
    }
    say(&format!("runs {}", body.runs()));
}

#[tokio::test]
async fn f5_five_processes_with_two_hundred_equal_calls_each() {
    let database = Fresh::new().await;
    let said = child("one_of_five").arg(database.url()).run_many(5).await;
    let (mut runs, mut answers) = (0, Vec::new());
    for message in said.into_iter().flatten() {
        match message.strip_prefix("runs ") {
            Some(number) => runs += number.parse::<usize>().unwrap(),
            None => answers.push(message),
        }
    }
    assert_eq!(runs, 1);
    assert_eq!(answers.len(), 1000);
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    let pool = database.pool(1).await;
    assert_eq!(effects(&pool, 1).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_with_different_keys_do_not_wait_for_each_other() {
    let database = Fresh::new().await;
    let pool = database.pool(5).await;
    let body = Body::new();
    let mut calls = JoinSet::new();
    for no in 0..100 {
        let (pool, body) = (pool.clone(), body.clone());
        calls.spawn(async move { pay(&pool, order(no), &body).await });
    }
    while let Some(answer) = calls.join_next().await {
        answer.unwrap().unwrap();
    }
    assert_eq!(body.runs(), 100);
    assert_eq!(records(&pool).await, 100);
}
