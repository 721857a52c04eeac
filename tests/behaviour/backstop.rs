//! The backstop: the business table is asked before the body runs, for repeats that come after the
//! record's time.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use idem::testing::clock::TokioClock;
use idem::{Answered, MemoryStore, idempotent, observe};
use idem_test_support::Body;
use sqlx::{SqlitePool, SqliteTransaction};

use crate::support::{Failure, Fresh, committed, write};

const DAY: Duration = Duration::from_secs(86_400);

/// A business table in memory.
#[derive(Default)]
struct Orders(Mutex<HashMap<u64, String>>);

impl Orders {
    async fn find(&self, no: u64) -> Result<Option<String>, Failure> {
        tokio::task::yield_now().await;
        match no {
            13 => Err(Failure::Busy),
            14 => Err(Failure::Declined("not known".to_owned())),
            _ => Ok(self.0.lock().unwrap().get(&no).cloned()),
        }
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

#[idempotent(
    key = "{no}", ttl = "7d", store = store, fingerprint(no), record_err = all,
    backstop = orders.find(no)
)]
async fn create(
    store: &MemoryStore,
    no: u64,
    orders: &Orders,
    body: &Body,
) -> Result<String, Failure> {
    let order = format!("{no}/{}", body.run().await);
    orders.0.lock().unwrap().insert(no, order.clone());
    Ok(order)
}

#[tokio::test(start_paused = true)]
async fn a12_the_eighth_day_replay_of_a_seven_day_record_creates_no_second_order() {
    let store = MemoryStore::builder().clock(TokioClock::new()).build();
    let (orders, body) = (Orders::default(), Body::new());
    let (answer, seen) = observe(create(&store, 7, &orders, &body)).await;
    assert_eq!(answer.unwrap(), "7/1");
    assert_eq!(seen.answered(), Some(Answered::FirstRun));

    tokio::time::advance(DAY * 8).await;
    let (answer, seen) = observe(create(&store, 7, &orders, &body)).await;
    assert_eq!(answer.unwrap(), "7/1");
    let replay = Answered::Replay { recorded_at: None };
    assert_eq!(seen.answered(), Some(replay));

    // Recorded: from now on the record answers, whatever becomes of the order.
    orders.0.lock().unwrap().clear();
    let (answer, seen) = observe(create(&store, 7, &orders, &body)).await;
    assert_eq!(answer.unwrap(), "7/1");
    assert!(matches!(
        seen.answered(),
        Some(Answered::Replay {
            recorded_at: Some(_)
        })
    ));
    assert_eq!((body.runs(), orders.len()), (1, 0));
}

#[tokio::test]
async fn a12_a_backstop_that_cannot_look_releases_whatever_errors_are_final() {
    let (store, orders, body) = (MemoryStore::new(), Orders::default(), Body::new());
    for _ in 0..2 {
        let (answer, seen) = observe(create(&store, 13, &orders, &body)).await;
        assert!(matches!(answer, Err(Failure::Busy)));
        assert_eq!(seen.answered(), Some(Answered::FirstRun));
        let answer = create(&store, 14, &orders, &body).await;
        assert!(matches!(answer, Err(Failure::Declined(_))));
        assert_eq!(store.len(), 0);
    }
    assert_eq!(body.runs(), 0);
}

/// An error of another type is converted, as by `?`.
#[idempotent(
    key = "{no}", ttl = "7d", store = tx,
    backstop = sqlx::query_scalar("SELECT what FROM effect WHERE what = $1")
        .bind(no.to_string())
        .fetch_optional(&mut **tx)
)]
async fn in_tx(tx: &mut SqliteTransaction<'_>, no: u64, body: &Body) -> Result<String, Failure> {
    body.run().await;
    write(tx, &no.to_string()).await?;
    Ok(no.to_string())
}

async fn known(
    tx: &mut SqliteTransaction<'static>,
    no: u64,
) -> Result<Option<String>, sqlx::Error> {
    let known = sqlx::query_scalar("SELECT what FROM effect WHERE what = $1");
    known.bind(no.to_string()).fetch_optional(&mut **tx).await
}

struct Shop {
    pool: SqlitePool,
}

impl Shop {
    #[idempotent(
        key = "{no}",
        ttl = "7d",
        store = "self.pool",
        tx = "tx",
        backstop = "known(tx, no)"
    )]
    async fn create(&self, no: u64, body: &Body) -> Result<String, Failure> {
        body.run().await;
        write(tx, &no.to_string()).await?;
        Ok(no.to_string())
    }

    #[idempotent(
        key = "{no}", ttl = "7d", store = self.pool, tx = tx, retry = 2, backstop = known(tx, no)
    )]
    async fn create_retried(&self, no: u64, body: &Body) -> Result<String, Failure> {
        body.run().await;
        write(tx, &no.to_string()).await?;
        Ok(no.to_string())
    }

    #[idempotent(key = "{no}", ttl = "7d", store = self.pool, tx = tx, backstop = async {
        write(tx, "tried").await?;
        Err::<Option<String>, _>(Failure::Busy)
    })]
    async fn cannot_look(&self, no: u64) -> Result<String, Failure> {
        Ok(no.to_string())
    }
}

/// Every record's seven days are over.
async fn on_the_eighth_day(fresh: &Fresh) {
    let expire = sqlx::query("UPDATE idem_record SET expires_at = 1");
    expire.execute(&fresh.pool).await.unwrap();
}

#[tokio::test]
async fn a12_the_backstop_sees_the_transaction_in_hand() {
    let (fresh, body) = (Fresh::new().await, Body::new());
    committed!(fresh, tx => in_tx(tx, 1, &body)).unwrap();
    on_the_eighth_day(&fresh).await;
    for recorded in [false, true] {
        let (answer, seen) = observe(async { committed!(fresh, tx => in_tx(tx, 1, &body)) }).await;
        assert_eq!(answer.unwrap(), "1");
        match seen.answered() {
            Some(Answered::Replay { recorded_at }) => assert_eq!(recorded_at.is_some(), recorded),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((body.runs(), fresh.effects().await), (1, 1));
}

#[tokio::test]
async fn a12_the_backstop_sees_the_frameworks_transaction() {
    let (fresh, body) = (Fresh::new().await, Body::new());
    let shop = Shop {
        pool: fresh.pool.clone(),
    };
    shop.create(1, &body).await.unwrap();
    shop.create_retried(2, &body).await.unwrap();
    on_the_eighth_day(&fresh).await;
    for recorded in [false, true] {
        for seen in [
            observe(shop.create(1, &body)).await.1,
            observe(shop.create_retried(2, &body)).await.1,
        ] {
            match seen.answered() {
                Some(Answered::Replay { recorded_at }) => {
                    assert_eq!(recorded_at.is_some(), recorded);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((body.runs(), fresh.effects().await), (2, 2));

    let answer = shop.cannot_look(3).await;
    assert!(matches!(answer, Err(Failure::Busy)));
    assert_eq!(fresh.effects().await, 2, "rolled back");
}

#[tokio::test]
async fn a12_the_future_is_send() {
    let (store, orders, body) = (MemoryStore::new(), Orders::default(), Body::new());
    let answer = tokio::spawn(async move { create(&store, 1, &orders, &body).await });
    assert_eq!(answer.await.unwrap().unwrap(), "1/1");
}
