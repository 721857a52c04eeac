//! Keys that are known after their outcome is gone.

use std::time::Duration;

use idem_runtime::protocol::State;
use idem_runtime::retention::Retention;
use idem_runtime::store::sql::LeasedSql;
use idem_runtime::store::sql::lease::LeaseDialect;
use idem_runtime::store::{Held, Reserved, Store};
use sqlx::{Executor as _, MySql, Postgres, Sqlite};

use crate::support::{LEASE, granted, hour, id, mariadb, postgres, request, sqlite};

/// A build that knows no tombstones leaves the end of the old one where it takes a row over: the
/// later of both ends counts.
async fn stale_end<D: LeaseDialect>(store: LeasedSql<D>, set: impl AsyncFn(&'static str)) {
    for (key, retention) in [("hour", hour()), ("never", Retention::FOREVER)] {
        let held = granted(store.reserve(&request(key, LEASE)).await.unwrap());
        let done = store
            .complete(&held, b"new".as_slice().into(), retention)
            .await;
        assert_eq!(done.unwrap(), Held::Yes);
        set("UPDATE idem_lease SET known_until = created_at").await;
        assert_eq!(store.purge(10).await.unwrap(), 0);
        let answer = store.reserve(&request(key, LEASE)).await.unwrap();
        assert!(matches!(answer, Reserved::Completed { .. }), "{answer:?}");
        assert!(store.lookup(held.id).await.unwrap().is_some());
        assert!(store.forget(held.id).await.unwrap());
    }
}

#[tokio::test]
async fn an_end_that_an_older_build_left_ends_nothing() {
    let (database, pool) = postgres().await;
    stale_end(LeasedSql::new(pool), async |sql| {
        database.execute(sql).await
    })
    .await;
    let (database, pool) = mariadb().await;
    stale_end(LeasedSql::new(pool), async |sql| {
        database.execute(sql).await
    })
    .await;
    let (_file, pool) = sqlite().await;
    let set = async |sql| {
        pool.execute(sql).await.unwrap();
    };
    stale_end(LeasedSql::new(pool.clone()), set).await;
}

/// A purge drops outcomes that are over, once each and within its limit, and keeps their keys.
async fn buried<D: LeaseDialect>(store: LeasedSql<D>, count: impl AsyncFn(&'static str) -> i64) {
    let short = Retention::new(Duration::from_millis(1)).unwrap();
    let (day, forever) = (
        short.with_tombstone(Duration::from_secs(86_400)).unwrap(),
        short.with_tombstone_forever(),
    );
    for n in 0..10 {
        let held = granted(store.reserve(&request(n, LEASE)).await.unwrap());
        let retention = [day, forever, short][n % 3];
        let done = store
            .complete(&held, b"paid".as_slice().into(), retention)
            .await;
        assert_eq!(done.unwrap(), Held::Yes);
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    // Three are over altogether, seven are buried.
    for purged in [4, 4, 2, 0] {
        assert_eq!(store.purge(4).await.unwrap(), purged);
    }
    assert_eq!(count("SELECT count(*) FROM idem_lease").await, 7);
    let kept = "SELECT count(*) FROM idem_lease WHERE outcome IS NOT NULL";
    assert_eq!(count(kept).await, 0);
    for n in [0, 1] {
        let answer = store.reserve(&request(n, LEASE)).await.unwrap();
        assert_eq!(answer, Reserved::OutcomeGone);
        let shown = store.lookup(id(n)).await.unwrap().unwrap();
        assert_eq!((shown.scope, shown.key_text), (String::new(), None));
        let State::Tombstone { until } = shown.record.state else {
            panic!("{:?}", shown.record);
        };
        assert_eq!(until.is_none(), n == 1);
    }
}

#[tokio::test]
async fn a12_a_purge_drops_the_outcome_and_keeps_the_key() {
    let (_database, pool) = postgres().await;
    let count = async |sql| sqlx::query_scalar(sql).fetch_one(&pool).await.unwrap();
    buried(LeasedSql::<Postgres>::new(pool.clone()), count).await;
    let (_database, pool) = mariadb().await;
    let count = async |sql| sqlx::query_scalar(sql).fetch_one(&pool).await.unwrap();
    buried(LeasedSql::<MySql>::new(pool.clone()), count).await;
    let (_file, pool) = sqlite().await;
    let count = async |sql| sqlx::query_scalar(sql).fetch_one(&pool).await.unwrap();
    buried(LeasedSql::<Sqlite>::new(pool.clone()), count).await;
}
