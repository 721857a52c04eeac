//! Two transactions that each want what the other one holds: the server ends one of them soon.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idem_runtime::{ErrorKind, Retry};
use sqlx::mysql::MySqlPool;
use tokio::sync::Barrier;

use crate::database::Database;
use crate::service::{Body, Paid, PayError, Then, add, pay, pay_and_commit};

/// Less than a call waits here, far more than the server needs to find a circle.
const SOON: Duration = Duration::from_secs(15);

/// Told by the framework before the body ran, or by the server in a statement of a body's own.
#[track_caller]
fn assert_told(told: &PayError) {
    match told {
        PayError::Idem(error) => {
            assert_eq!(error.kind(), ErrorKind::RetryTransaction, "{error}");
            assert_eq!(error.retry(), Retry::NewTransaction);
        }
        PayError::Sql(error) => assert!(error.to_string().contains("1213"), "{error}"),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_one_told(answers: [&Paid; 2]) {
    match answers {
        [Ok(_), Err(told)] | [Err(told), Ok(_)] => assert_told(told),
        other => panic!("{other:?}"),
    }
}

async fn keys(pool: MySqlPool, met: Arc<Barrier>, [a, b]: [&'static str; 2], body: Body) -> Paid {
    let mut tx = pool.begin().await?;
    let first = pay(&mut tx, a, 1, body.clone()).await;
    met.wait().await;
    let paid = match first {
        Ok(_) => pay(&mut tx, b, 1, body).await,
        failed => failed,
    };
    match paid {
        Ok(id) => tx.commit().await.map(|()| id).map_err(PayError::from),
        Err(error) => {
            tx.rollback().await?;
            Err(error)
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_12_keys_in_opposite_order() {
    let db = Database::fresh().await;
    let met = Arc::new(Barrier::new(2));
    let call = |ids| {
        tokio::spawn(keys(
            db.pool.clone(),
            Arc::clone(&met),
            ids,
            Body::default(),
        ))
    };
    let began = Instant::now();
    let (one, two) = (call(["a", "b"]), call(["b", "a"]));
    let (one, two) = (one.await.unwrap(), two.await.unwrap());
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_one_told([&one, &two]);
    assert_eq!((db.orders().await, db.records().await), (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_12_key_against_row() {
    let db = Database::fresh().await;
    let met = Arc::new(Barrier::new(2));
    let webhook = tokio::spawn({
        let (pool, met) = (db.pool.clone(), Arc::clone(&met));
        async move {
            let mut tx = pool.begin().await?;
            let paid = pay(&mut tx, "order", 1, Body::default()).await?;
            met.wait().await;
            match add(&mut tx, 1).await {
                Ok(()) => tx.commit().await.map(|()| paid).map_err(PayError::from),
                Err(error) => {
                    tx.rollback().await?;
                    Err(error.into())
                }
            }
        }
    });
    let began = Instant::now();
    let mut tx = db.pool.begin().await.unwrap();
    add(&mut tx, 1).await.unwrap();
    met.wait().await;
    let page = match pay(&mut tx, "order", 1, Body::default()).await {
        Ok(paid) => tx.commit().await.map(|()| paid).map_err(PayError::from),
        Err(error) => {
            tx.rollback().await.unwrap();
            Err(error)
        }
    };
    let webhook = webhook.await.unwrap();
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_one_told([&webhook, &page]);
    assert_eq!(db.orders().await, 1);
}

/// Those that wait for long do not end each other's transactions when the first one rolls back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_calls_go_on_when_the_first_rolls_back() {
    let db = Database::fresh().await;
    let body = Body::default();
    let mut first = db.pool.begin().await.unwrap();
    pay(&mut first, "a", 1, Body::default()).await.unwrap();
    let waiters: Vec<_> = (0..6)
        .map(|_| {
            let (pool, body) = (db.pool.clone(), body.then(Then::Finish));
            tokio::spawn(async move { pay_and_commit(&pool, "a", 1, body).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(2500)).await;
    first.rollback().await.unwrap();
    let mut answers = Vec::new();
    for waiter in waiters {
        answers.push(waiter.await.unwrap().unwrap());
    }
    answers.dedup();
    assert_eq!((answers.len(), body.runs(), db.orders().await), (1, 1, 1));
}
