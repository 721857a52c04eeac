//! What only MySQL and MariaDB do: numbers drawn under a lock, counts of rows, sessions with settings.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_runtime::ErrorKind;
use idem_runtime::key::RecordId;
use idem_runtime::store::sql::LeasedSql;
use idem_runtime::store::{Held, Reserved, Store};
use idem_test_support::poll::drop_after;
use idem_test_support::proxy::Fault;
use idem_test_support::{MariaDbDatabase, MariaDbServer};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{AssertSqlSafe, MySql, MySqlConnection};

use crate::support::{
    LEASE, REJECTING, Remote as _, WAITING, call, granted, hour, id, mariadb, refused, request,
};

/// A store whose sessions begin with `setup`.
async fn with_sessions(
    database: &MariaDbDatabase,
    max: u32,
    setup: &'static str,
) -> LeasedSql<MySql> {
    let options = MySqlPoolOptions::new().max_connections(max);
    let options = options
        .after_connect(move |conn, _| Box::pin(async move { run(conn, setup).await.map(drop) }));
    LeasedSql::new(database.pool_of(options).await)
}

async fn run(conn: &mut MySqlConnection, sql: &str) -> Result<u64, sqlx::Error> {
    let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
    sql.execute(conn).await.map(|done| done.rows_affected())
}

fn slot(id: RecordId) -> u8 {
    id.as_bytes()[14] % 64
}

/// Locks the record's slot until the connection goes; only against those who want it for themselves.
async fn hold_slot(database: &MariaDbDatabase, id: RecordId) -> MySqlConnection {
    let mut holder = database.connect().await;
    let hold = format!(
        "BEGIN; SELECT slot FROM idem_lease_fence WHERE slot = {} LOCK IN SHARE MODE",
        slot(id)
    );
    run(&mut holder, &hold).await.unwrap();
    holder
}

/// The number and the row are one step: what waited while others drew has a number above theirs. A
/// number drawn before the lock could be below that of a row that came and went meanwhile.
#[tokio::test]
async fn a_fence_is_drawn_under_the_lock() {
    let (database, pool) = mariadb().await;
    let store = LeasedSql::new(pool);
    let (ours, lapsed) = ("ours", "lapsed");
    let other = (0..).find(|n| slot(id(n)) != slot(id(ours)) && slot(id(n)) != slot(id(lapsed)));
    let other = other.unwrap();
    let _ = granted(
        store
            .reserve(&request(lapsed, Duration::from_millis(1)))
            .await
            .unwrap(),
    );
    tokio::time::sleep(Duration::from_millis(5)).await;
    for key in [ours, lapsed] {
        let holder = hold_slot(&database, id(key)).await;
        let waits = {
            let store = store.clone();
            tokio::spawn(async move { store.reserve(&request(key, LEASE)).await })
        };
        database.until_one_waits().await;
        let meanwhile = granted(store.reserve(&request(other, LEASE)).await.unwrap());
        assert_eq!(store.release(&meanwhile).await.unwrap(), Held::Yes);
        drop(holder);
        let held = granted(waits.await.unwrap().unwrap());
        assert!(held.fence > meanwhile.fence, "{key}");
    }
}

/// In the order in which the record is granted, by release and by take-over.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fences_grow_in_the_order_of_the_grants() {
    let (_database, pool) = mariadb().await;
    let store = LeasedSql::new(pool);
    let fences = Arc::new(Mutex::new(Vec::new()));
    let tasks = (0..8).map(|task| {
        let (store, fences) = (store.clone(), Arc::clone(&fences));
        tokio::spawn(async move {
            let mut grants = 0;
            while grants < 25 {
                let asked = request("one", Duration::from_millis(60_000));
                let Reserved::Granted(held) = store.reserve(&asked).await.unwrap() else {
                    continue;
                };
                grants += 1;
                fences.lock().unwrap().push(held.fence.get());
                if task % 2 == 0 {
                    assert_eq!(store.release(&held).await.unwrap(), Held::Yes);
                } else {
                    let shortest = Duration::from_millis(1);
                    assert_eq!(store.renew(&held, shortest).await.unwrap(), Held::Yes);
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let fences = fences.lock().unwrap();
    assert_eq!(fences.len(), 200);
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}

/// MY-02.
#[tokio::test]
async fn my_02_it_does_not_matter_what_the_connection_counts() {
    let (database, _pool) = mariadb().await;
    let proxy = database.proxy();
    proxy.count_changed_rows();
    let changed = database.options_through(&proxy);
    for (options, count) in [(database.options(), 1), (changed, 0)] {
        // The server's clock stands: the same lease ends in the same microsecond.
        let stands = "SET timestamp = 1800000000";
        let pool = MySqlPoolOptions::new().max_connections(1);
        let pool = pool.after_connect(move |conn, _| {
            Box::pin(async move { run(conn, stands).await.map(drop) })
        });
        let pool = pool.connect_with(options).await.unwrap();
        let store = LeasedSql::new(pool.clone());
        let held = granted(store.reserve(&request("7", LEASE)).await.unwrap());
        let same = "UPDATE idem_lease SET owner = owner";
        let mut conn = pool.acquire().await.unwrap();
        assert_eq!(run(&mut conn, same).await.unwrap(), count);
        drop(conn);

        for _ in 0..3 {
            assert_eq!(store.renew(&held, LEASE).await.unwrap(), Held::Yes);
        }
        let mut stranger = request("7", LEASE);
        let answer = store.reserve(&stranger).await.unwrap();
        assert!(matches!(answer, Reserved::InProgress { .. }), "{answer:?}");
        stranger.owner = held.owner;
        assert_eq!(granted(store.reserve(&stranger).await.unwrap()), held);

        let mut late = held.clone();
        late.fence = idem_runtime::protocol::Fence::new(held.fence.get() + 1);
        let done = store.complete(&late, b"late".as_slice().into(), hour());
        assert_eq!(done.await.unwrap(), Held::No);
        assert_eq!(store.renew(&late, LEASE).await.unwrap(), Held::No);
        assert_eq!(store.release(&late).await.unwrap(), Held::No);
        let done = store.complete(&held, b"done".as_slice().into(), hour());
        assert_eq!(done.await.unwrap(), Held::Yes);
        let again = store.complete(&held, b"done".as_slice().into(), hour());
        assert_eq!(again.await.unwrap(), Held::No);
        assert_eq!(store.renew(&held, LEASE).await.unwrap(), Held::No);
        assert!(store.forget(held.id).await.unwrap());
        assert!(!store.forget(held.id).await.unwrap());
    }
}

/// A lease ends at the same moment in every time zone, and for sessions that are set to others.
#[tokio::test]
async fn ttl_a_session_s_time_zone_moves_no_lease() {
    let (database, _pool) = mariadb().await;
    let east = with_sessions(&database, 2, "SET time_zone = '+13:00'").await;
    let west = with_sessions(&database, 2, "SET time_zone = '-11:00'").await;
    let asked = request("1", Duration::from_millis(700));
    let held = granted(east.reserve(&asked).await.unwrap());
    for store in [&west, &east] {
        match store.reserve(&request("1", LEASE)).await.unwrap() {
            Reserved::InProgress { free_in } => assert!(free_in.unwrap() <= asked.lease),
            other => panic!("{other:?}"),
        }
    }
    tokio::time::sleep(asked.lease).await;
    let next = granted(west.reserve(&request("1", LEASE)).await.unwrap());
    assert!(next.fence > held.fence);
    let answer = east.reserve(&request("1", LEASE)).await.unwrap();
    assert!(matches!(answer, Reserved::InProgress { .. }), "{answer:?}");
}

/// A lock wait that times out (1205) is tried again within bounds; then the step fails closed.
#[tokio::test]
async fn my_03_a_lock_wait_is_tried_again_within_bounds() {
    let (database, _pool) = mariadb().await;
    let store = with_sessions(&database, 4, "SET SESSION innodb_lock_wait_timeout = 1").await;
    let held = granted(store.reserve(&request("1", LEASE)).await.unwrap());
    let lock = "BEGIN; SELECT 1 FROM idem_lease FOR UPDATE";
    let mut holder = database.connect().await;
    run(&mut holder, lock).await.unwrap();
    let failed = store.renew(&held, LEASE).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::StoreUnavailable);
    assert!(failed.to_string().contains("again and again"), "{failed}");
    let renewed = tokio::spawn({
        let (store, held) = (store.clone(), held.clone());
        async move { store.renew(&held, LEASE).await }
    });
    // Longer than one try.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    run(&mut holder, "COMMIT").await.unwrap();
    assert_eq!(renewed.await.unwrap().unwrap(), Held::Yes);

    // A reservation waits for its slot in the same way, and its body does not run.
    let _holder = hold_slot(&database, id("2")).await;
    let failed = store.reserve(&request("2", LEASE)).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::StoreUnavailable);
    assert_eq!(failed.effect(), idem_runtime::Effect::None);
}

/// A deadlock (1213) ends the statement and nothing else: it is tried again.
#[tokio::test]
async fn my_03_a_deadlock_is_tried_again() {
    let (database, _pool) = mariadb().await;
    let proxy = database.proxy();
    let store = LeasedSql::new(database.pool_through(&proxy, 4));
    let asked = request("1", Duration::from_millis(1));
    let held = granted(store.reserve(&asked).await.unwrap());
    tokio::time::sleep(Duration::from_millis(5)).await;
    // It has done more than the step, so that the server gives the step up.
    let mut holder = database.connect().await;
    let begin = "CREATE TABLE much (n INT) ENGINE = InnoDB; BEGIN; \
                 INSERT INTO much SELECT seq FROM seq_1_to_1000; \
                 SELECT 1 FROM idem_lease FOR UPDATE";
    run(&mut holder, begin).await.unwrap();
    let taken = tokio::spawn({
        let store = store.clone();
        async move { store.reserve(&request("1", LEASE)).await }
    });
    database.until_one_waits().await;
    run(&mut holder, "SELECT 1 FROM idem_lease_fence FOR UPDATE")
        .await
        .unwrap();
    let tries = || {
        let all = proxy.statements();
        all.iter()
            .filter(|text| text.starts_with("REPLACE"))
            .count()
    };
    while tries() < 2 {
        assert!(!taken.is_finished(), "{:?}", proxy.statements());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    run(&mut holder, "COMMIT").await.unwrap();
    let next = granted(taken.await.unwrap().unwrap());
    assert!(next.fence > held.fence);
}

/// The driver cannot go on after a statement that was dropped: such a connection is not used again.
#[tokio::test]
async fn a_dropped_step_leaves_no_broken_connection_behind() {
    let (database, _pool) = mariadb().await;
    // Tried before it is lent, the pool would find some of the broken ones by itself.
    let options = MySqlPoolOptions::new().max_connections(1);
    let options = options.test_before_acquire(false);
    let store = LeasedSql::new(database.pool_of(options).await);
    for polls in 1..200 {
        let key = format!("{polls}");
        let asked = request(&key, LEASE);
        let answer = drop_after(store.reserve(&asked), polls).await;
        let held = granted(store.reserve(&asked).await.unwrap());
        drop_after(store.renew(&held, LEASE), polls).await;
        drop_after(store.lookup(held.id), polls).await;
        drop_after(store.purge(10), polls).await;
        let completion = store.complete(&held, b"x".as_slice().into(), hour());
        drop_after(completion, polls).await;
        drop_after(store.forget(held.id), polls).await;
        drop_after(store.release(&held), polls).await;
        store.lookup(held.id).await.unwrap();
        if answer.is_some() {
            return;
        }
    }
    panic!("a reservation takes more polls than that");
}

/// A connection whose answer does not come is closed, and not waited for by those that come next.
#[tokio::test]
async fn a_step_that_was_given_up_holds_no_connection() {
    let (database, _pool) = mariadb().await;
    let proxy = database.proxy();
    let store = LeasedSql::<MySql>::builder()
        .limit(Duration::from_secs(2))
        .build(database.pool_through(&proxy, 1));
    let silent = proxy.on("INSERT INTO idem_lease", Fault::HoldAnswer);
    let asked = request("1", LEASE);
    let failed = store.reserve(&asked).await.unwrap_err();
    assert!(silent.fired());
    assert_eq!(failed.kind(), ErrorKind::StoreUnavailable);
    // It was made, and is ours.
    let held = granted(store.reserve(&asked).await.unwrap());
    assert_eq!(store.release(&held).await.unwrap(), Held::Yes);
}

/// A first run takes three statements and a replay one, which writes nothing.
#[tokio::test]
async fn statements_are_few_and_a_replay_only_reads() {
    let (database, _pool) = mariadb().await;
    let proxy = database.proxy();
    let store = LeasedSql::new(database.pool_through(&proxy, 4));
    let about = || {
        let mut all = proxy.statements();
        all.retain(|text| text.contains("idem_lease"));
        all
    };
    let first = call(&store, &REJECTING, "1", || async { Ok(1) }).await;
    assert_eq!(first.unwrap(), 1);
    assert_eq!(about().len(), 3, "{:?}", about());
    proxy.clear_log();
    for _ in 0..10 {
        let again = call(&store, &REJECTING, "1", || async { Ok(2) }).await;
        assert_eq!(again.unwrap(), 1);
    }
    assert_eq!(about().len(), 10);
    assert!(about().iter().all(|text| text.starts_with("SELECT")));
    assert!(
        proxy.prepared().len() <= proxy.accepted(),
        "prepared once in a connection"
    );
}

#[tokio::test]
async fn sessions_that_do_not_commit_by_themselves_are_refused() {
    let (database, _pool) = mariadb().await;
    let store = with_sessions(&database, 1, "SET autocommit = 0").await;
    let refused = store.check().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Schema);
    assert!(refused.to_string().contains("autocommit"), "{refused}");
    let cuts = with_sessions(&database, 1, "SET SESSION sql_mode = ''").await;
    let refused = cuts.check().await.unwrap_err();
    assert!(refused.to_string().contains("not strict"), "{refused}");
}

/// A killed server forgets no reservation and no number.
#[tokio::test]
async fn a_killed_server_comes_back_with_reservations_and_fences() {
    let mut server = MariaDbServer::start(&[]);
    let database = MariaDbDatabase::on(&server.url()).await;
    let store = LeasedSql::<MySql>::builder()
        .limit(Duration::from_secs(2))
        .build(database.pool(4).await);
    store.migrate().await.unwrap();
    let kept = granted(store.reserve(&request("kept", LEASE)).await.unwrap());
    let mut last = kept.fence;
    for _ in 0..10 {
        let gone = granted(store.reserve(&request("gone", LEASE)).await.unwrap());
        last = gone.fence;
        assert_eq!(store.release(&gone).await.unwrap(), Held::Yes);
    }
    let first = call(&store, &WAITING, "done", || async { Ok(1) }).await;
    assert_eq!(first.unwrap(), 1);

    server.kill9();
    let down = call(&store, &REJECTING, "down", || async { Ok(2) }).await;
    assert_eq!(refused(down), ErrorKind::StoreUnavailable);

    server.start_again();
    let again = call(&store, &WAITING, "done", || async { Ok(3) }).await;
    assert_eq!(again.unwrap(), 1);
    let answer = store.reserve(&request("kept", LEASE)).await.unwrap();
    assert!(matches!(answer, Reserved::InProgress { .. }), "{answer:?}");
    let next = granted(store.reserve(&request("gone", LEASE)).await.unwrap());
    assert!(next.fence > last);
    let done = store.complete(&kept, b"x".as_slice().into(), hour());
    assert_eq!(done.await.unwrap(), Held::Yes);
}
