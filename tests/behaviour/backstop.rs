//! The backstop: the business table is asked before the body runs, for repeats that come after the
//! record's time.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use idem::testing::clock::TokioClock;
use idem::{Answered, ErrorKind, MemoryStore, idempotent, observe, store::Store as _};
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

#[idempotent(
    key = "{no}", ttl = "7d", tombstone = "365d", store = store, fingerprint(cents),
    record_err = all, backstop = orders.find(no)
)]
async fn pay(
    store: &MemoryStore,
    no: u64,
    cents: i64,
    orders: &Orders,
    body: &Body,
) -> Result<String, Failure> {
    let order = format!("{no}/{}/{cents}", body.run().await);
    orders.0.lock().unwrap().insert(no, order.clone());
    Ok(order)
}

/// Of a call that is known to be done the business table may still know the answer.
#[tokio::test(start_paused = true)]
async fn a12_a_tombstone_is_answered_by_the_backstop_if_it_knows() {
    let store = MemoryStore::builder().clock(TokioClock::new()).build();
    let (orders, body) = (Orders::default(), Body::new());
    for no in [7, 13, 14] {
        // Where the backstop cannot look nothing was recorded.
        let paid = pay(&store, no, 5, &orders, &body).await;
        assert_eq!(paid.is_ok(), no == 7);
    }
    tokio::time::advance(DAY * 8).await;
    for purging in [false, true] {
        if purging {
            store.purge(10).await.unwrap();
        }
        let (answer, seen) = observe(pay(&store, 7, 5, &orders, &body)).await;
        assert_eq!(answer.unwrap(), "7/1/5");
        let replay = Answered::Replay { recorded_at: None };
        assert_eq!(seen.answered(), Some(replay));
        // Another payload is none of its business.
        let other = pay(&store, 7, 6, &orders, &body).await.unwrap_err();
        assert_eq!(other.kind(), ErrorKind::FingerprintMismatch);
    }
    // What it knew was not recorded: the tombstone stays, and its end with it.
    orders.0.lock().unwrap().clear();
    let (answer, seen) = observe(pay(&store, 7, 5, &orders, &body)).await;
    let failure = answer.unwrap_err();
    assert_eq!(failure.kind(), ErrorKind::OutcomeGone);
    let refusal = failure.idem();
    assert_eq!(refusal.effect(), idem::Effect::Done);
    assert_eq!(
        (refusal.key(), refusal.record_id()),
        (Some("7"), seen.record_id())
    );
    assert_eq!(seen.answered(), Some(Answered::Refused));
    tokio::time::advance(DAY * 365).await;
    assert_eq!(pay(&store, 7, 5, &orders, &body).await.unwrap(), "7/2/5");
}

#[idempotent(
    key = "{no}", ttl = "1ms", tombstone = "forever", store = store, fingerprint = none,
    backstop = orders.find(look_for)
)]
async fn looked_up(
    store: &MemoryStore,
    no: u64,
    look_for: u64,
    orders: &Orders,
) -> Result<String, Failure> {
    Ok(format!("{no}/{}/{look_for}", orders.len()))
}

#[tokio::test]
async fn a12_a_backstop_that_cannot_look_at_a_tombstone_says_so() {
    let (store, orders) = (MemoryStore::new(), Orders::default());
    looked_up(&store, 1, 1, &orders).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    let answer = looked_up(&store, 1, 13, &orders).await;
    assert!(matches!(answer, Err(Failure::Busy)));
    let answer = looked_up(&store, 1, 14, &orders).await;
    assert!(matches!(answer, Err(Failure::Declined(_))));
    let answer = looked_up(&store, 1, 1, &orders).await.unwrap_err();
    assert_eq!(answer.kind(), ErrorKind::OutcomeGone);
}

#[idempotent(
    key = "{no}", ttl = "7d", tombstone = "365d", store = tx, keep = |what: &String| what.len(),
    rebuild = rebuilt(kept, no), backstop = known_in(tx, no.clone())
)]
async fn kept_in_tx(
    tx: &mut SqliteTransaction<'_>,
    no: String,
    body: &Body,
) -> Result<String, Failure> {
    body.run().await;
    write(tx, &no).await?;
    Ok(no)
}

async fn rebuilt(kept: usize, no: String) -> Result<String, Failure> {
    Ok(format!("{no} of {kept}"))
}

async fn known_in(
    tx: &mut SqliteTransaction<'_>,
    no: String,
) -> Result<Option<String>, sqlx::Error> {
    let known = sqlx::query_scalar("SELECT what || '!' FROM effect WHERE what = $1");
    known.bind(no).fetch_optional(&mut **tx).await
}

impl Shop {
    #[idempotent(
        key = "{no}", ttl = "7d", tombstone = "365d", store = self.pool, tx = tx,
        backstop = known(tx, no)
    )]
    async fn buried(&self, no: u64, body: &Body) -> Result<String, Failure> {
        body.run().await;
        write(tx, &no.to_string()).await?;
        Ok(no.to_string())
    }

    #[idempotent(
        key = "{no}", ttl = "7d", tombstone = "365d", store = self.pool, tx = tx, retry = 2,
        backstop = known(tx, no)
    )]
    async fn buried_retried(&self, no: u64, body: &Body) -> Result<String, Failure> {
        body.run().await;
        write(tx, &no.to_string()).await?;
        Ok(no.to_string())
    }

    /// One that needs no transaction, and one that leaves a mark in it.
    #[idempotent(
        key = "{no}", ttl = "7d", tombstone = "365d", store = self.pool, tx = tx,
        backstop = async { Ok::<_, Failure>(mark.then(|| "without".to_owned())) }
    )]
    async fn without_tx(&self, no: u64, mark: bool) -> Result<String, Failure> {
        write(tx, &no.to_string()).await?;
        Ok(mark.to_string())
    }

    #[idempotent(
        key = "{no}", ttl = "7d", tombstone = "365d", store = self.pool, tx = tx,
        fingerprint(no), backstop = async {
            write(tx, "a mark").await?;
            Ok::<_, Failure>((!first).then(|| "marked".to_owned()))
        }
    )]
    async fn marked(&self, no: u64, first: bool) -> Result<String, Failure> {
        write(tx, &no.to_string()).await?;
        Ok(first.to_string())
    }
}

#[idempotent(
    key = "{no}", ttl = "7d", store = store, max_outcome = "8B", oversize = tombstone,
    fingerprint(no), backstop = orders.find(no)
)]
async fn large(
    store: &MemoryStore,
    no: u64,
    orders: &Orders,
    body: &Body,
) -> Result<String, Failure> {
    let order = format!("{no}/{}, which is more than eight bytes", body.run().await);
    orders.0.lock().unwrap().insert(no, order.clone());
    Ok(order)
}

#[tokio::test]
async fn a11_an_outcome_that_was_too_large_is_answered_by_the_backstop() {
    let (store, orders, body) = (MemoryStore::new(), Orders::default(), Body::new());
    let first = large(&store, 7, &orders, &body).await.unwrap();
    let (answer, seen) = observe(large(&store, 7, &orders, &body)).await;
    assert_eq!(answer.unwrap(), first);
    assert!(seen.replayed());
    orders.0.lock().unwrap().clear();
    let gone = large(&store, 7, &orders, &body).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::OutcomeGone);
    assert_eq!(body.runs(), 1);
}

/// The outcomes are gone, the keys known.
async fn after_the_retention(fresh: &Fresh) {
    let expire = sqlx::query("UPDATE idem_record SET expires_at = 1");
    expire.execute(&fresh.pool).await.unwrap();
}

#[tokio::test]
async fn a12_a_tombstone_in_the_callers_transaction_is_answered_there() {
    let (fresh, body) = (Fresh::new().await, Body::new());
    let call = async || committed!(fresh, tx => kept_in_tx(tx, "one".to_owned(), &body));
    assert_eq!(call().await.unwrap(), "one");
    assert_eq!(call().await.unwrap(), "one of 3");
    after_the_retention(&fresh).await;
    // The whole answer: nothing was kept of it.
    let (answer, seen) = observe(call()).await;
    assert_eq!(answer.unwrap(), "one!");
    assert!(seen.replayed());
    let none = sqlx::query("DELETE FROM effect");
    none.execute(&fresh.pool).await.unwrap();
    assert_eq!(call().await.unwrap_err().kind(), ErrorKind::OutcomeGone);
    assert_eq!(body.runs(), 1);
}

#[tokio::test]
async fn a12_a_tombstone_before_the_frameworks_transaction_is_answered_in_one_aside() {
    let (fresh, body) = (Fresh::new().await, Body::new());
    let shop = Shop {
        pool: fresh.pool.clone(),
    };
    shop.buried(1, &body).await.unwrap();
    shop.buried_retried(2, &body).await.unwrap();
    shop.without_tx(3, true).await.unwrap();
    shop.marked(4, true).await.unwrap();
    after_the_retention(&fresh).await;
    let before = fresh.effects().await;
    for _ in 0..3 {
        for (call, no) in [
            (observe(shop.buried(1, &body)).await, "1"),
            (observe(shop.buried_retried(2, &body)).await, "2"),
            (observe(shop.without_tx(3, true)).await, "without"),
            // It looks, and changes nothing.
            (observe(shop.marked(4, false)).await, "marked"),
        ] {
            let (answer, seen) = call;
            assert_eq!(answer.unwrap(), no);
            assert!(seen.replayed());
        }
    }
    assert_eq!((body.runs(), fresh.effects().await), (2, before));
    let none = sqlx::query("DELETE FROM effect");
    none.execute(&fresh.pool).await.unwrap();
    for answer in [
        shop.buried(1, &body).await,
        shop.buried_retried(2, &body).await,
        shop.marked(4, true).await,
    ] {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::OutcomeGone);
    }
    assert_eq!((body.runs(), fresh.effects().await), (2, 0));
}

#[tokio::test]
async fn a12_the_future_is_send() {
    let (store, orders, body) = (MemoryStore::new(), Orders::default(), Body::new());
    let answer = tokio::spawn(async move { create(&store, 1, &orders, &body).await });
    assert_eq!(answer.await.unwrap().unwrap(), "1/1");
}
