//! Lost answers, silent servers, no connection to spare.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use idem_runtime::ErrorKind;
use idem_runtime::store::sql::LeasedSql;
use idem_runtime::store::{Reserved, Store};
use idem_test_support::proxy::{Direction, Fault};
use idem_test_support::{Proxy, TestDatabase};
use sqlx::Postgres;
use sqlx::postgres::PgPoolOptions;

use crate::support::{Failure, LEASE, REJECTING, call, granted, hour, postgres, refused, request};

async fn through_a_proxy(limit: Duration) -> (TestDatabase, Proxy, LeasedSql<Postgres>) {
    let (database, _) = postgres().await;
    let proxy = database.proxy();
    let pool = database.pool_through(&proxy, 4);
    let store = LeasedSql::<Postgres>::builder().limit(limit).build(pool);
    (database, proxy, store)
}

#[derive(Default)]
struct Runs(AtomicUsize);

impl Runs {
    async fn body(&self, value: u64) -> Result<u64, Failure> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(value)
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// MY-09: the reservation is there, its answer is not; it is known again by its owner.
#[tokio::test]
async fn my_09_a_reservation_whose_answer_is_lost_is_our_own() {
    let (_database, proxy, store) = through_a_proxy(Duration::from_secs(5)).await;
    let (lost, runs) = (
        proxy.on("INSERT INTO idem_lease", Fault::CutAnswer),
        Runs::default(),
    );
    let answer = call(&store, &REJECTING, "7", || runs.body(1)).await;
    assert!(lost.fired());
    assert_eq!((answer.unwrap(), runs.count()), (1, 1));
    let again = call(&store, &REJECTING, "7", || runs.body(2)).await;
    assert_eq!((again.unwrap(), runs.count()), (1, 1));
}

#[tokio::test]
async fn my_09_another_owner_is_refused_until_the_lease_ends() {
    let (_database, proxy, store) = through_a_proxy(Duration::from_secs(5)).await;
    let ours = request("9", Duration::from_millis(600));
    let lost = proxy.on("INSERT INTO idem_lease", Fault::CutAnswer);
    let begun = Instant::now();
    let held = granted(store.reserve(&ours).await.unwrap());
    assert!(lost.fired());
    assert_eq!(granted(store.reserve(&ours).await.unwrap()), held);
    let theirs = request("9", LEASE);
    match store.reserve(&theirs).await.unwrap() {
        Reserved::InProgress { free_in } => assert!(free_in.unwrap() <= ours.lease),
        other => assert!(begun.elapsed() >= ours.lease, "{other:?}"),
    }
    tokio::time::sleep(ours.lease).await;
    assert!(granted(store.reserve(&theirs).await.unwrap()).fence > held.fence);
}

/// The outcome is recorded although nobody heard so: the call answers, and does not run again.
#[tokio::test]
async fn a_completion_whose_answer_is_lost_counts() {
    let (_database, proxy, store) = through_a_proxy(Duration::from_secs(5)).await;
    for (key, fault) in [("1", Fault::CutAnswer), ("2", Fault::CutBefore)] {
        let runs = Runs::default();
        let lost = proxy.on("SET outcome", fault);
        let answer = call(&store, &REJECTING, key, || runs.body(5)).await;
        assert!(lost.fired(), "{fault:?}");
        assert_eq!((answer.unwrap(), runs.count()), (5, 1), "{fault:?}");
        let again = call(&store, &REJECTING, key, || runs.body(6)).await;
        assert_eq!((again.unwrap(), runs.count()), (5, 1), "{fault:?}");
    }
}

#[tokio::test]
async fn a_release_whose_answer_is_lost_frees_the_key() {
    let (_database, proxy, store) = through_a_proxy(Duration::from_secs(5)).await;
    let held = granted(store.reserve(&request("3", LEASE)).await.unwrap());
    let lost = proxy.on("DELETE FROM idem_lease", Fault::CutAnswer);
    assert!(store.release(&held).await.is_err());
    assert!(lost.fired());
    let next = granted(store.reserve(&request("3", LEASE)).await.unwrap());
    assert!(next.fence > held.fence);
}

/// RD-10 for a database: a server that accepts and does not answer.
#[tokio::test]
async fn a_silent_database_runs_nothing() {
    let (_database, proxy, store) = through_a_proxy(Duration::from_millis(400)).await;
    let runs = Runs::default();
    call(&store, &REJECTING, "0", || runs.body(0))
        .await
        .unwrap();
    proxy.hold(Direction::ToClient);
    for key in ["0", "1"] {
        let begun = Instant::now();
        let answer = call(&store, &REJECTING, key, || runs.body(1)).await;
        assert_eq!(refused(answer), ErrorKind::StoreUnavailable);
        assert!(begun.elapsed() < Duration::from_secs(3));
    }
    assert_eq!(runs.count(), 1);
    proxy.heal();
    proxy.cut_all();
    // What was reserved without an answer was given back, or its lease ends.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let answer = call(&store, &REJECTING, "1", || runs.body(1)).await;
    assert_eq!((answer.unwrap(), runs.count()), (1, 2));
}

#[tokio::test]
async fn a_database_that_is_down_runs_nothing() {
    let (_database, proxy, store) = through_a_proxy(Duration::from_secs(1)).await;
    proxy.refuse(true);
    proxy.cut_all();
    let runs = Runs::default();
    let answer = call(&store, &REJECTING, "1", || runs.body(1)).await;
    assert_eq!(
        (refused(answer), runs.count()),
        (ErrorKind::StoreUnavailable, 0)
    );
    proxy.refuse(false);
    let answer = call(&store, &REJECTING, "1", || runs.body(1)).await;
    assert_eq!((answer.unwrap(), runs.count()), (1, 1));
}

#[tokio::test]
async fn no_connection_to_spare_runs_nothing() {
    let (database, _) = postgres().await;
    for (limit, acquire) in [(5_000, 200), (200, 30_000)]
        .map(|(a, b)| (Duration::from_millis(a), Duration::from_millis(b)))
    {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(acquire)
            .connect_with(database.options())
            .await
            .unwrap();
        let store = LeasedSql::<Postgres>::builder()
            .limit(limit)
            .build(pool.clone());
        let taken = pool.acquire().await.unwrap();
        let (runs, begun) = (Runs::default(), Instant::now());
        let answer = call(&store, &REJECTING, "busy", || runs.body(1)).await;
        assert_eq!(
            (refused(answer), runs.count()),
            (ErrorKind::StoreUnavailable, 0)
        );
        assert!(begun.elapsed() < Duration::from_secs(3));
        drop(taken);
    }
}

/// A first run takes two statements and a replay one, which writes nothing.
#[tokio::test]
async fn statements_are_few_and_a_replay_writes_nothing() {
    let (database, proxy, store) = through_a_proxy(Duration::from_secs(5)).await;
    let runs = Runs::default();
    let about = |proxy: &Proxy| {
        let mut all = proxy.statements();
        all.retain(|text| text.contains("idem_lease"));
        all.len()
    };
    call(&store, &REJECTING, "1", || runs.body(1))
        .await
        .unwrap();
    assert_eq!(about(&proxy), 2, "{:?}", proxy.statements());
    let row = async || -> String {
        let mut conn = database.connect().await;
        sqlx::query_scalar("SELECT xmin || ' ' || ctid::text FROM idem_lease")
            .fetch_one(&mut conn)
            .await
            .unwrap()
    };
    let before = row().await;
    proxy.clear_log();
    for _ in 0..10 {
        call(&store, &REJECTING, "1", || runs.body(2))
            .await
            .unwrap();
    }
    assert_eq!((about(&proxy), runs.count()), (10, 1));
    assert_eq!(row().await, before, "a replay locked or wrote the row");
    assert!(
        proxy.prepared().len() <= proxy.accepted() * 2,
        "prepared once in a connection"
    );
}

/// Under an isolation level of the database's choice that makes statements fail.
#[tokio::test]
async fn serializable_by_default_does_no_harm() {
    let (database, _) = postgres().await;
    for level in ["repeatable read", "serializable"] {
        let options = database
            .options()
            .options([("default_transaction_isolation", level)]);
        let pool = PgPoolOptions::new()
            .max_connections(8)
            .connect_with(options)
            .await
            .unwrap();
        let store = LeasedSql::new(pool);
        for round in 0..20 {
            let key = format!("{level}{round}");
            let asked = (0..16).map(|_| {
                let (store, key) = (store.clone(), key.clone());
                tokio::spawn(async move { store.reserve(&request(key, LEASE)).await })
            });
            let asked: Vec<_> = asked.collect();
            let mut held = Vec::new();
            for answer in asked {
                match answer.await.unwrap().unwrap() {
                    Reserved::Granted(reservation) => held.push(reservation),
                    Reserved::InProgress { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(held.len(), 1);
            let done = store.complete(&held[0], b"x".as_slice().into(), hour());
            assert_eq!(done.await.unwrap(), idem_runtime::store::Held::Yes);
        }
    }
}
