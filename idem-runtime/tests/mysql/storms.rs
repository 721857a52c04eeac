//! Many equal calls at once.

use std::sync::Arc;
use std::time::Duration;

use idem_test_support::child::{Args, say};
use idem_test_support::mariadb;
use sqlx::mysql::MySqlPool;
use tokio::sync::Barrier;

use crate::database::Database;
use crate::service::{Body, PayError, Then, pay_alone, pay_and_commit};

/// Which of the two modes.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Alone,
    Callers,
}

/// `count` equal calls, released together; how many first runs there were, and all answers.
async fn storm(pool: &MySqlPool, mode: Mode, count: usize, body: &Body) -> Vec<i64> {
    let barrier = Arc::new(Barrier::new(count));
    let calls = (0..count).map(|_| {
        let (pool, body, barrier) = (pool.clone(), body.clone(), Arc::clone(&barrier));
        tokio::spawn(async move {
            barrier.wait().await;
            match mode {
                Mode::Alone => pay_alone(&pool, "storm", 100, body).await,
                Mode::Callers => pay_and_commit(&pool, "storm", 100, body).await,
            }
        })
    });
    let mut answers = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        answers.push(call.await.unwrap().unwrap());
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ip_11_a_thousand_equal_calls_run_once_and_get_one_answer() {
    for mode in [Mode::Alone, Mode::Callers] {
        let db = Database::fresh().await;
        let pool = db.pool(5, "").await;
        let body = Body::default().then(Then::Pause(Duration::from_millis(100)));
        let mut answers = storm(&pool, mode, 1000, &body).await;
        assert_eq!(answers.len(), 1000);
        answers.dedup();
        assert_eq!(answers.len(), 1, "{mode:?}");
        assert_eq!((body.runs(), db.orders().await), (1, 1), "{mode:?}");
    }
}

idem_test_support::child_roles!(one_of_five);

const CALLS: usize = 200;

#[tokio::test]
async fn ip_11_five_processes_run_once_and_get_one_answer() {
    for mode in ["alone", "callers"] {
        let db = Database::fresh().await;
        let children = child("one_of_five").arg(db.url()).arg(mode);
        let (mut runs, mut answers) = (0, Vec::new());
        for said in children.run_many(5).await {
            let mut numbers = said.iter().map(|n| n.parse::<i64>().unwrap());
            runs += numbers.next().unwrap();
            answers.extend(numbers);
        }
        assert_eq!(answers.len(), 5 * CALLS);
        answers.dedup();
        assert_eq!((runs, answers.len()), (1, 1), "{mode}");
        assert_eq!(db.orders().await, 1, "{mode}");
    }
}

/// Says how often its body ran, then the answers.
async fn one_of_five(args: Args) {
    let pool = mariadb::pool(args.get(0), 5).await;
    let mode = match args.get(1) {
        "alone" => Mode::Alone,
        _ => Mode::Callers,
    };
    args.line_up().await;
    let body = Body::default().then(Then::Pause(Duration::from_millis(300)));
    let answers = storm(&pool, mode, CALLS, &body).await;
    say(&body.runs().to_string());
    for answer in answers {
        say(&answer.to_string());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn my_01_ownership_is_not_told_by_a_count() {
    let db = Database::fresh().await;
    let body = Body::default();
    for _ in 0..2 {
        pay_and_commit(&db.pool, "storm", 100, body.clone())
            .await
            .unwrap();
    }
    storm(&db.pool, Mode::Callers, 20, &body).await;
    assert_eq!((body.runs(), db.orders().await), (1, 1));
}

/// Every eighth first run rolls back; each key is paid once in the end, and nobody sees a deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn my_03_a_storm_with_roll_backs_pays_each_key_once_without_an_error() {
    let db = Database::fresh().await;
    let pool = db.pool(10, "").await;
    let body = Body::default();
    let workers = (0..9).map(|worker| {
        let (pool, body) = (pool.clone(), body.clone());
        tokio::spawn(async move {
            for n in 0..60_u32 {
                // Three workers a key.
                let no = format!("{}-{n}", worker % 3);
                let mut tx = pool.begin().await?;
                crate::service::pay(&mut tx, &no, 1, body.clone()).await?;
                if (worker + n) % 8 == 0 {
                    tx.rollback().await?;
                    tx = pool.begin().await?;
                    crate::service::pay(&mut tx, &no, 1, body.clone()).await?;
                }
                tx.commit().await?;
            }
            Ok::<_, PayError>(())
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap().unwrap();
    }
    assert_eq!(db.orders().await, 180);
    let keys = db.number("SELECT COUNT(DISTINCT no) FROM orders").await;
    assert_eq!(keys, 180);
}
