//! The table: its schema, what stands in it, what purging leaves.

use std::time::Duration;

use idem_runtime::ErrorKind;
use idem_runtime::protocol::{OnCrash, State};
use idem_runtime::store::sql::LeasedSql;
use idem_runtime::store::sql::lease::LeaseDialect;
use idem_runtime::store::{Held, Reserved, Store};
use sqlx::{Executor as _, MySql, Postgres, Sqlite};

use crate::support::{LEASE, granted, hour, id, mariadb, postgres, request, sqlite};

async fn created_and_checked<D: LeaseDialect>(pool: sqlx::Pool<D>) {
    let store = LeasedSql::new(pool.clone());
    store.migrate().await.unwrap();
    store.check().await.unwrap();
    let other = LeasedSql::<D>::builder().table("other_lease").unwrap();
    let other = other.build(pool);
    assert_eq!(other.check().await.unwrap_err().kind(), ErrorKind::Schema);
    let refused = other.reserve(&request(1, LEASE)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Schema);
    other.migrate().await.unwrap();
    other.check().await.unwrap();
    let _ = granted(other.reserve(&request(1, LEASE)).await.unwrap());
    assert!(store.lookup(id(1)).await.unwrap().is_none());
    assert!(LeasedSql::<D>::builder().table("a; DROP TABLE b").is_err());
}

#[tokio::test]
async fn it_is_created_and_checked() {
    let (_database, pool) = postgres().await;
    created_and_checked(pool).await;
    let (_database, pool) = mariadb().await;
    created_and_checked(pool).await;
    let (_file, pool) = sqlite().await;
    created_and_checked(pool).await;
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let (database, pool) = postgres().await;
    let store = LeasedSql::new(pool);
    database.execute("DROP SEQUENCE idem_lease_fence").await;
    let missing = store.check().await.unwrap_err().to_string();
    assert!(missing.contains("sequence of fences"), "{missing}");
    database
        .execute("ALTER TABLE idem_lease DROP COLUMN fence")
        .await;
    let missing = store.check().await.unwrap_err().to_string();
    assert!(missing.contains("no column fence"), "{missing}");

    let (database, pool) = mariadb().await;
    let store = LeasedSql::new(pool);
    for (change, back, expected) in [
        (
            "DELETE FROM idem_lease_fence WHERE slot = 7",
            "INSERT INTO idem_lease_fence VALUES (7)",
            "63 of the 64 slots",
        ),
        (
            "ALTER TABLE idem_lease MODIFY fence BIGINT NOT NULL",
            "ALTER TABLE idem_lease MODIFY fence BIGINT NOT NULL AUTO_INCREMENT",
            "AUTO_INCREMENT",
        ),
        (
            "ALTER TABLE idem_lease DROP PRIMARY KEY, ADD PRIMARY KEY (id, fence)",
            "ALTER TABLE idem_lease DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
            "must be exactly (id)",
        ),
        (
            "ALTER TABLE idem_lease ENGINE = Aria",
            "ALTER TABLE idem_lease ENGINE = InnoDB",
            "must be InnoDB",
        ),
        (
            "ALTER TABLE idem_lease_fence ENGINE = Aria",
            "ALTER TABLE idem_lease_fence ENGINE = InnoDB",
            "must be InnoDB",
        ),
        (
            "ALTER TABLE idem_lease MODIFY lease_until DATETIME(3)",
            "ALTER TABLE idem_lease MODIFY lease_until BIGINT",
            "lease_until is datetime(3)",
        ),
    ] {
        database.execute(change).await;
        let missing = store.check().await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Schema);
        assert!(missing.to_string().contains(expected), "{missing}");
        database.execute(back).await;
        store.check().await.unwrap();
    }

    let (_file, pool) = sqlite().await;
    let store = LeasedSql::new(pool.clone());
    pool.execute("DROP TRIGGER idem_lease_fence_keep")
        .await
        .unwrap();
    let missing = store.check().await.unwrap_err().to_string();
    assert!(missing.contains("fences growing"), "{missing}");
}

/// Whatever removes the row, the next reservation has a higher fence.
async fn fences_outlive_rows<D: LeaseDialect>(store: LeasedSql<D>) {
    let mut last = 0;
    for round in 0..20 {
        let asked = request("f", Duration::from_millis(1));
        let held = granted(store.reserve(&asked).await.unwrap());
        assert!(
            held.fence.get() > last,
            "round {round}: {} after {last}",
            held.fence
        );
        last = held.fence.get();
        tokio::time::sleep(Duration::from_millis(5)).await;
        match round % 4 {
            0 => assert_eq!(store.release(&held).await.unwrap(), Held::Yes),
            1 => assert!(store.forget(held.id).await.unwrap()),
            // Left behind, and taken over.
            2 => {}
            _ => {
                let kept =
                    idem_runtime::retention::Retention::new(Duration::from_millis(1)).unwrap();
                let done = store.complete(&held, b"".as_slice().into(), kept).await;
                assert_eq!(done.unwrap(), Held::Yes);
                tokio::time::sleep(Duration::from_millis(5)).await;
                assert_eq!(store.purge(10).await.unwrap(), 1);
            }
        }
    }
}

#[tokio::test]
async fn fences_grow_whatever_removes_the_row() {
    let (_database, pool) = postgres().await;
    fences_outlive_rows(LeasedSql::new(pool)).await;
    let (_database, pool) = mariadb().await;
    fences_outlive_rows(LeasedSql::new(pool)).await;
    let (_file, pool) = sqlite().await;
    fences_outlive_rows(LeasedSql::new(pool)).await;
}

/// IP-03: a reservation whose end is missing is held, not free.
async fn without_an_end<D: LeaseDialect>(pool: sqlx::Pool<D>)
where
    for<'c> &'c sqlx::Pool<D>: sqlx::Executor<'c, Database = D>,
{
    let store = LeasedSql::new(pool.clone());
    let _ = granted(store.reserve(&request(1, LEASE)).await.unwrap());
    pool.execute("UPDATE idem_lease SET lease_until = NULL")
        .await
        .unwrap();
    let answer = store.reserve(&request(1, LEASE)).await.unwrap();
    assert_eq!(answer, Reserved::InProgress { free_in: None });
    assert!(!store.forget(id(1)).await.unwrap());
}

#[tokio::test]
async fn ip_03_a_reservation_without_an_end_is_held() {
    let (_database, pool) = postgres().await;
    without_an_end(pool).await;
    let (_database, pool) = mariadb().await;
    without_an_end(pool).await;
    let (_file, pool) = sqlite().await;
    without_an_end(pool).await;
}

/// TTL-09: reservations are never purged with what is over; those that were left behind go by a
/// longer time of their own.
async fn left_behind<D: LeaseDialect>(store: LeasedSql<D>) {
    let live = granted(store.reserve(&request("live", LEASE)).await.unwrap());
    let mut dead = request("dead", Duration::from_millis(1));
    dead.on_crash = OnCrash::Hold;
    let dead = granted(store.reserve(&dead).await.unwrap());
    let mut held = request("held", Duration::from_secs(60));
    held.on_crash = OnCrash::Hold;
    let held = granted(store.reserve(&held).await.unwrap());
    let short = Duration::from_millis(1);
    assert_eq!(store.renew(&held, short).await.unwrap(), Held::Yes);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(store.purge(100).await.unwrap(), 0);
    assert_eq!(
        store
            .purge_abandoned(Duration::from_secs(60), 100)
            .await
            .unwrap(),
        0
    );
    // LK-10: it can be seen whose it was.
    let shown = store.lookup(dead.id).await.unwrap().unwrap();
    assert!(
        matches!(shown.record.state, State::Reserved { owner, lease_until: Some(_), .. } if owner == dead.owner)
    );
    assert_eq!(
        store
            .purge_abandoned(Duration::from_millis(20), 100)
            .await
            .unwrap(),
        1
    );
    assert!(store.lookup(dead.id).await.unwrap().is_none());
    // What is held stays until somebody decides.
    assert!(store.lookup(held.id).await.unwrap().is_some());
    assert!(store.forget(held.id).await.unwrap());
    let done = store.complete(&live, b"".as_slice().into(), hour()).await;
    assert_eq!(done.unwrap(), Held::Yes);
}

#[tokio::test]
async fn ttl_09_reservations_left_behind_go_by_their_own_time() {
    let (_database, pool) = postgres().await;
    left_behind(LeasedSql::<Postgres>::new(pool)).await;
    let (_database, pool) = mariadb().await;
    left_behind(LeasedSql::<MySql>::new(pool)).await;
    let (_file, pool) = sqlite().await;
    left_behind(LeasedSql::<Sqlite>::new(pool)).await;
}

/// A purge takes no more than it was told, and leaves what others hold locked: ten of a thousand.
async fn bounded<D: LeaseDialect, G>(store: LeasedSql<D>, holder: G) {
    assert_eq!(store.purge(300).await.unwrap(), 300);
    let mut gone = 300;
    while let rows @ 1.. = store.purge(300).await.unwrap() {
        assert!(rows <= 300);
        gone += rows;
    }
    assert_eq!(gone, 990);
    drop(holder);
    let mut left = 10;
    for _ in 0..500 {
        left -= store.purge(300).await.unwrap();
        if left == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{left} rows are still there");
}

#[tokio::test]
async fn ttl_07_a_purge_is_bounded_and_skips_what_is_locked() {
    let (database, pool) = postgres().await;
    database
        .execute(
            "INSERT INTO idem_lease (id, scope, fingerprint, owner, fence, outcome, completed_at, expires_at) \
             SELECT gen_random_uuid(), 's', '\\x00', gen_random_uuid(), n, '', now(), now() - interval '1 s' \
             FROM generate_series(1, 1000) n; ANALYZE idem_lease",
        )
        .await;
    let mut holder = database.connect().await;
    let hold = "BEGIN; SELECT 1 FROM idem_lease WHERE fence <= 10 FOR UPDATE";
    sqlx::raw_sql(hold).execute(&mut holder).await.unwrap();
    bounded(LeasedSql::new(pool), holder).await;

    let (database, pool) = mariadb().await;
    database
        .execute(
            "INSERT INTO idem_lease (id, scope, fingerprint, owner, fence, outcome, created_at, completed_at, expires_at) \
             SELECT UNHEX(MD5(seq)), 's', '', '', seq, '', 1, 1, 1 FROM seq_1_to_1000",
        )
        .await;
    let mut holder = database.connect().await;
    // By the id, since a range would hold the row after it too.
    let hold = "BEGIN; SELECT 1 FROM seq_1_to_10 STRAIGHT_JOIN idem_lease FORCE INDEX (PRIMARY) \
                ON id = UNHEX(MD5(seq)) FOR UPDATE";
    sqlx::raw_sql(hold).execute(&mut holder).await.unwrap();
    bounded(LeasedSql::new(pool), holder).await;
}
