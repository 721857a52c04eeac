//! Reading first, statement by statement.

use std::time::Duration;

use idem::{idempotent, observe};
use idem_test_support::{Body, proxy::Fault};

use crate::{
    postgres::{
        calls::{effects, write},
        db::{Fresh, Pool},
    },
    support::{Failure, Order, Receipt, order},
};

#[idempotent(key = "{order.no}", ttl = "1h", store = pool, tx = tx)]
async fn often(pool: &Pool, order: Order, body: &Body) -> Result<Receipt, Failure> {
    write(tx, &order).await?;
    let run = body.run().await;
    Ok(Receipt { no: order.no, run })
}

#[tokio::test]
async fn f2_a_replay_among_many_takes_one_statement_and_no_transaction() {
    let database = Fresh::new().await;
    let (proxy, pool) = database.proxied(1);
    let body = Body::new();
    often(&pool, order(1), &body).await.unwrap();

    // The first repeat looks by inserting: nothing tells yet that there will be more.
    proxy.clear_log();
    often(&pool, order(1), &body).await.unwrap();
    let first = proxy.statements();
    assert_eq!(first.len(), 4, "{first:?}");
    assert_eq!((&*first[0], &*first[3]), ("BEGIN", "ROLLBACK"));

    for _ in 0..20 {
        often(&pool, order(1), &body).await.unwrap();
    }
    proxy.clear_log();
    for _ in 0..50 {
        let (answer, seen) = observe(often(&pool, order(1), &body)).await;
        assert_eq!(answer.unwrap(), Receipt { no: 1, run: 1 });
        assert!(seen.replayed());
    }
    let repeats = proxy.statements();
    assert_eq!(repeats.len(), 50, "{repeats:?}");
    assert!(
        repeats
            .iter()
            .all(|sql| sql.starts_with("SELECT fingerprint"))
    );

    // A first run costs one look-up more, and is one.
    proxy.clear_log();
    often(&pool, order(2), &body).await.unwrap();
    let run = proxy.statements();
    assert_eq!(run.len(), 6, "{run:?}");
    assert!(run[0].starts_with("SELECT fingerprint"));
    assert_eq!((&*run[1], &*run[5]), ("BEGIN", "COMMIT"));
    assert_eq!(body.runs(), 2);

    // Where first runs are the rule again, they stop reading first.
    for no in 3..40 {
        often(&pool, order(no), &body).await.unwrap();
    }
    proxy.clear_log();
    often(&pool, order(100), &body).await.unwrap();
    assert_eq!(proxy.statements().len(), 5);
}

/// A repeat with the wrong payload goes first, and the right one comes while it is still looking:
/// it must not be measured by the wrong one.
#[tokio::test]
async fn a8_a_repeat_is_compared_with_the_record_and_not_with_another_repeat() {
    #[idempotent(key = "{order.no}", ttl = "1h", store = pool, tx = tx)]
    async fn seldom(pool: &Pool, order: Order, body: &Body) -> Result<Receipt, Failure> {
        write(tx, &order).await?;
        let run = body.run().await;
        Ok(Receipt { no: order.no, run })
    }
    let database = Fresh::new().await;
    let (proxy, pool) = database.proxied(3);
    let body = Body::new();
    seldom(&pool, order(1), &body).await.unwrap();

    let looking = proxy.on("INSERT INTO idem_record", Fault::HoldAnswer);
    let wrong = tokio::spawn({
        let (pool, body) = (pool.clone(), body.clone());
        let order = Order { no: 1, cents: 501 };
        async move { seldom(&pool, order, &body).await }
    });
    looking.wait().await;
    let right = tokio::spawn({
        let (pool, body) = (pool.clone(), body.clone());
        async move { seldom(&pool, order(1), &body).await }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    looking.release();
    assert_eq!(
        wrong.await.unwrap().unwrap_err().kind(),
        idem::ErrorKind::FingerprintMismatch
    );
    assert_eq!(right.await.unwrap().unwrap(), Receipt { no: 1, run: 1 });
    assert_eq!(effects(&pool, 1).await, 1);
}

/// The same for an operation that refuses duplicates of running calls: no call runs here.
#[tokio::test]
async fn a9_a_repeat_is_not_refused_because_another_repeat_is_being_answered() {
    #[idempotent(key = "{order.no}", ttl = "1h", store = pool, tx = tx, reject)]
    async fn refusing(pool: &Pool, order: Order, body: &Body) -> Result<Receipt, Failure> {
        write(tx, &order).await?;
        let run = body.run().await;
        Ok(Receipt { no: order.no, run })
    }
    let database = Fresh::new().await;
    let (proxy, pool) = database.proxied(3);
    let body = Body::new();
    refusing(&pool, order(1), &body).await.unwrap();
    let looking = proxy.on("INSERT INTO idem_record", Fault::HoldAnswer);
    let call = || {
        let (pool, body) = (pool.clone(), body.clone());
        async move { refusing(&pool, order(1), &body).await }
    };
    let one = tokio::spawn(call());
    looking.wait().await;
    let other = tokio::spawn(call());
    tokio::time::sleep(Duration::from_millis(20)).await;
    looking.release();
    assert_eq!(one.await.unwrap().unwrap().run, 1);
    assert_eq!(other.await.unwrap().unwrap().run, 1);
}
