//! Lost answers, silent servers, no connection to spare.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use idem_runtime::ErrorKind;
use idem_runtime::key::Scope;
use idem_runtime::operation::Operation;
use idem_runtime::store::sql::LeasedSql;
use idem_runtime::store::sql::lease::LeaseDialect;
use idem_runtime::store::{Held, Reservation, Reserved, Store};
use idem_test_support::proxy::{Direction, Fault};
use idem_test_support::{Proxy, TestDatabase};
use sqlx::Executor;
use sqlx::pool::PoolOptions;

use crate::support::{
    Failure, LEASE, REJECTING, Remote, call, granted, hour, on_each, refused, request,
};

on_each! {
    my_09_a_reservation_whose_answer_is_lost_is_our_own
    my_09_another_owner_is_refused_until_the_lease_ends
    a_completion_whose_answer_is_lost_counts
    a_release_whose_answer_is_lost_frees_the_key
    a_silent_database_runs_nothing
    a_call_that_never_ran_is_not_held
    a_database_that_is_down_runs_nothing
    no_connection_to_spare_runs_nothing
    bodies_that_hold_the_whole_pool_keep_their_leases
    the_level_of_isolation_does_not_matter
}

async fn through_a_proxy<R: Remote>(limit: Duration) -> (R, Proxy, LeasedSql<R::Db>) {
    let database = R::fresh().await;
    let proxy = database.proxy();
    let pool = database.pool_through(&proxy, 4);
    let store = LeasedSql::<R::Db>::builder().limit(limit).build(pool);
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
async fn my_09_a_reservation_whose_answer_is_lost_is_our_own<R: Remote>() {
    let (_database, proxy, store) = through_a_proxy::<R>(Duration::from_secs(5)).await;
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

async fn my_09_another_owner_is_refused_until_the_lease_ends<R: Remote>() {
    let (_database, proxy, store) = through_a_proxy::<R>(Duration::from_secs(5)).await;
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
async fn a_completion_whose_answer_is_lost_counts<R: Remote>() {
    let (_database, proxy, store) = through_a_proxy::<R>(Duration::from_secs(5)).await;
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

async fn a_release_whose_answer_is_lost_frees_the_key<R: Remote>() {
    let (_database, proxy, store) = through_a_proxy::<R>(Duration::from_secs(5)).await;
    let held = granted(store.reserve(&request("3", LEASE)).await.unwrap());
    let lost = proxy.on("DELETE FROM idem_lease", Fault::CutAnswer);
    assert!(store.release(&held).await.is_err());
    assert!(lost.fired());
    let next = granted(store.reserve(&request("3", LEASE)).await.unwrap());
    assert!(next.fence > held.fence);
}

/// RD-10 for a database: a server that accepts and does not answer.
async fn a_silent_database_runs_nothing<R: Remote>() {
    let (_database, proxy, store) = through_a_proxy::<R>(Duration::from_millis(400)).await;
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

static HOLDING: Operation = Operation::new(Scope::fixed("held"))
    .retention_millis(60_000)
    .lease_millis(1_000)
    .reject()
    .on_crash_hold();

/// `on_crash = "hold"`: claims and confirmations that are carried out when nobody waits any more hold
/// no key.
async fn a_call_that_never_ran_is_not_held<R: Remote>() {
    for step in ["INSERT INTO idem_lease", "SET lease_until"] {
        let (_database, proxy, store) = through_a_proxy::<R>(Duration::from_millis(500)).await;
        let runs = Runs::default();
        let answer = call(&store, &HOLDING, "warm", || runs.body(1)).await;
        assert_eq!((answer.unwrap(), runs.count()), (1, 1));
        let held = proxy.on(step, Fault::HoldBefore);
        let answer = call(&store, &HOLDING, "7", || runs.body(2)).await;
        assert_eq!(refused(answer), ErrorKind::StoreUnavailable, "{step}");
        assert!(held.fired(), "{step}");
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        held.release();
        let mut tries = 0;
        while let Err(error) = call(&store, &HOLDING, "7", || runs.body(2)).await {
            tries += 1;
            assert!(tries < 100, "{step}: {error:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(runs.count(), 2, "{step}");
    }
}

async fn a_database_that_is_down_runs_nothing<R: Remote>() {
    let (_database, proxy, store) = through_a_proxy::<R>(Duration::from_secs(1)).await;
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

async fn no_connection_to_spare_runs_nothing<R: Remote>() {
    let database = R::fresh().await;
    for (limit, acquire) in [(5_000, 200), (200, 30_000)]
        .map(|(a, b)| (Duration::from_millis(a), Duration::from_millis(b)))
    {
        let options = PoolOptions::new().max_connections(1);
        let pool = database.pool_of(options.acquire_timeout(acquire)).await;
        let store = LeasedSql::<R::Db>::builder()
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

/// How many statements about the table there were.
/// Bodies that hold every connection of the store's pool, for longer than their leases.
async fn bodies_that_hold_the_whole_pool_keep_their_leases<R: Remote>() {
    let database = R::fresh().await;
    let options = PoolOptions::new().max_connections(3);
    let pool = database.pool_of(options).await;
    let store = LeasedSql::new(pool.clone());
    let all_hold = std::sync::Arc::new(tokio::sync::Barrier::new(3));
    let calls = (0..3_u64).map(|no| {
        let (store, pool) = (store.clone(), pool.clone());
        let all_hold = std::sync::Arc::clone(&all_hold);
        tokio::spawn(async move {
            let key = no.to_string();
            call(&store, &REJECTING, &key, || async move {
                // Held for three leases, after every reservation has been made.
                tokio::time::sleep(Duration::from_millis(200)).await;
                let held = pool.acquire().await.unwrap();
                all_hold.wait().await;
                tokio::time::sleep(Duration::from_secs(3)).await;
                drop(held);
                Ok(no)
            })
            .await
        })
    });
    for (no, call) in (0..).zip(calls.collect::<Vec<_>>()) {
        assert_eq!(call.await.unwrap().unwrap(), no);
    }
    for no in 0..3_u64 {
        let key = no.to_string();
        let again = call(&store, &REJECTING, &key, || async { Ok(99) }).await;
        assert_eq!(again.unwrap(), no);
    }
}

fn about(proxy: &Proxy) -> usize {
    let all = proxy.statements();
    all.iter()
        .filter(|text| text.contains("idem_lease"))
        .count()
}

/// A first run takes two statements and a replay one, which writes nothing.
#[tokio::test]
async fn statements_are_few_and_a_replay_writes_nothing() {
    let (database, proxy, store) = through_a_proxy::<TestDatabase>(Duration::from_secs(5)).await;
    let runs = Runs::default();
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

/// A level of the database's choice makes statements fail, or see what is old.
async fn the_level_of_isolation_does_not_matter<R: Remote>()
where
    for<'c> &'c mut <R::Db as sqlx::Database>::Connection: Executor<'c, Database = R::Db>,
{
    let database = R::fresh().await;
    for level in ["read committed", "repeatable read", "serializable"] {
        let options = PoolOptions::<R::Db>::new().max_connections(8);
        let options = options.after_connect(move |conn, _| {
            Box::pin(async move {
                let set = sqlx::AssertSqlSafe(R::level(level));
                conn.execute(sqlx::raw_sql(set)).await.map(drop)
            })
        });
        let store = LeasedSql::new(database.pool_of(options).await);
        for round in 0..20 {
            let key = format!("{level}{round}");
            let held = one_of_many(&store, &key).await;
            let over = request(&key, Duration::from_millis(1));
            if round % 2 == 0 {
                // Taken over, by one of many as well.
                let _ = store.renew(&held, over.lease).await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
                let next = one_of_many(&store, &key).await;
                assert!(next.fence > held.fence);
                let late = store.complete(&held, b"x".as_slice().into(), hour());
                assert_eq!(late.await.unwrap(), Held::No);
                assert_eq!(store.release(&next).await.unwrap(), Held::Yes);
            } else {
                let done = store.complete(&held, b"x".as_slice().into(), hour());
                assert_eq!(done.await.unwrap(), Held::Yes);
                let again = store.reserve(&request(&key, LEASE)).await.unwrap();
                assert!(matches!(again, Reserved::Completed { .. }), "{again:?}");
                assert!(store.forget(held.id).await.unwrap());
            }
            let next = granted(store.reserve(&request(&key, LEASE)).await.unwrap());
            assert!(next.fence > held.fence);
        }
    }
}

async fn one_of_many<D: LeaseDialect>(store: &LeasedSql<D>, key: &str) -> Reservation {
    let asked = (0..16).map(|_| {
        let (store, key) = (store.clone(), key.to_owned());
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
    held.remove(0)
}
