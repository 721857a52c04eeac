//! LK-01: a holder that stood still past its lease.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use idem_runtime::lock::{FencedUpdate, LockError, LockGuard, RunError, Written};
use idem_runtime::version::VersionDialect;
use idem_test_support::{MariaDb, Sqlite, postgres};
use sqlx::Pool;

use crate::support::{self, LONG, Locks, Place};

const LEASE: Duration = Duration::from_millis(600);
const PAST_IT: Duration = Duration::from_millis(800);

pub(crate) const DOCUMENT: &str = "CREATE TABLE document (id BIGINT PRIMARY KEY, \
     body VARCHAR(20) NOT NULL, fence BIGINT); INSERT INTO document VALUES (1, 'old', NULL);";

/// A's only thread sleeps past the lease, so nothing of A can renew; B takes over and writes; then A
/// goes on and writes under its number.
macro_rules! late_holder {
    ($place:expr, $pool:expr, $db:ty) => {{
        let (place, pool): (Place, Pool<$db>) = ($place, $pool);
        let (holds, held) = tokio::sync::oneshot::channel();
        let (go_on, wait) = mpsc::channel::<()>();
        let (b, of_a) = (place.locks(LONG).await, place.clone());
        let options = pool.connect_options();
        let slow = std::thread::spawn(move || {
            on_one_thread(async move {
                // Connections of its own: the others belong to the other runtime.
                let a = of_a.locks(Duration::from_millis(200)).await;
                let mut conn = sqlx::ConnectOptions::connect(&*options).await.unwrap();
                let guard = in_time(&a, "document:1").await;
                holds.send(guard.fence()).unwrap();
                std::thread::sleep(Duration::from_millis(500));
                wait.recv().unwrap();
                assert!(guard.is_lost());
                let late = update::<$db>().apply(&mut conn, guard.fence(), 1, ("A",)).await;
                let released = guard.release().await;
                assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
                late.unwrap()
            })
        });
        let first = held.await.unwrap();
        let guard = b.acquire("document:1").await.unwrap();
        assert!(guard.fence() > first);
        let mut conn = pool.acquire().await.unwrap();
        let done = update::<$db>().apply(&mut conn, guard.fence(), 1, ("B",)).await;
        assert_eq!(done.unwrap(), Written::Done);
        let mine = guard.fence();
        go_on.send(()).unwrap();
        let late = tokio::task::spawn_blocking(move || slow.join().unwrap()).await.unwrap();
        assert!(
            matches!(late, Written::Fenced { current, .. } if current == mine),
            "{late:?}"
        );
        let body: String = sqlx::query_scalar("SELECT body FROM document WHERE id = 1")
            .fetch_one(&mut *conn)
            .await
            .unwrap();
        assert_eq!(body, "B");
        drop(guard);
    }};
}

/// A runtime that does nothing while its work blocks.
fn on_one_thread<F: Future>(work: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(work)
}

/// On a slow machine an answer may come after its lease.
async fn in_time(locks: &Locks, name: &str) -> LockGuard {
    loop {
        match locks.acquire(name).await {
            Err(LockError::Failed(_)) => {}
            acquired => return acquired.unwrap(),
        }
    }
}

fn update<D: VersionDialect>() -> FencedUpdate<D, 1> {
    FencedUpdate::new("document", ["body"]).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lk_01_a_late_holder_is_refused_by_postgres() {
    let place = Place::of("postgres").await;
    let pool = postgres::pool(&place.url, 4).await;
    sqlx::raw_sql(DOCUMENT).execute(&pool).await.unwrap();
    late_holder!(place, pool, sqlx::Postgres);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lk_01_a_late_holder_is_refused_by_sqlite() {
    let place = Place::of("sqlite").await;
    let file = Sqlite::file().await;
    let pool = file.pool(4).await;
    sqlx::raw_sql(DOCUMENT).execute(&pool).await.unwrap();
    late_holder!(place, pool, sqlx::Sqlite);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lk_01_a_late_holder_is_refused_by_mysql() {
    let place = Place::of("redis").await;
    let database = MariaDb::database().await;
    let pool = database.pool(8).await;
    sqlx::raw_sql(DOCUMENT).execute(&pool).await.unwrap();
    late_holder!(place, pool, sqlx::MySql);
}

/// The same without anybody else: the holder learns of it by its own clock, and a body under the lock
/// is not run on.
#[tokio::test]
async fn lk_01_a_body_that_blocked_past_its_lease_is_not_run_on() {
    for kind in support::LEASED {
        let Locks::Lease(locks) = Place::of(kind).await.locks(LEASE).await else {
            unreachable!("a lease");
        };
        let mut went_on = false;
        let ran = locks
            .run("slow", async |_| {
                std::thread::sleep(PAST_IT);
                tokio::task::yield_now().await;
                went_on = true;
            })
            .await;
        assert!(
            matches!(ran, Err(RunError::Lost { output: None, .. })),
            "{ran:?}"
        );
        assert!(!went_on, "{kind}");
    }
}

/// It ended late, and nobody had the lock meanwhile: the store says so, and the result stands.
#[tokio::test]
async fn a_late_result_stands_if_nobody_else_had_the_lock() {
    for kind in support::LEASED {
        let place = Place::of(kind).await;
        let store = place.store().await;
        let Locks::Lease(locks) = Locks::on(store.clone(), LEASE) else {
            unreachable!("a lease");
        };
        let blocks = |_| async {
            std::thread::sleep(PAST_IT);
            7
        };
        assert_eq!(locks.run("slow", blocks).await.unwrap(), 7, "{kind}");

        // And if somebody had, its number says so.
        let taken = locks
            .run("slow", async |fence| {
                let taken = std::thread::spawn(move || {
                    on_one_thread(async move {
                        let others = match kind {
                            "memory" => Locks::on(store, LONG),
                            _ => place.locks(LONG).await,
                        };
                        let other = others.acquire("slow").await.unwrap();
                        assert!(other.fence() > fence);
                        std::mem::forget(other);
                    });
                });
                taken.join().unwrap();
                7
            })
            .await;
        assert!(
            matches!(
                taken,
                Err(RunError::Lost {
                    output: Some(7),
                    ..
                })
            ),
            "{kind}: {taken:?}"
        );
    }
}

/// In one line as well: who stands still keeps nobody waiting beyond the lease.
#[tokio::test]
async fn lk_01_a_holder_that_does_not_know_yet_leaves_the_line() {
    for kind in support::LEASED {
        let locks = Place::of(kind).await.locks(LEASE).await;
        let late = locks.acquire("slow").await.unwrap();
        std::thread::sleep(PAST_IT);
        let next = in_time(&locks, "slow").await;
        assert!(late.is_lost() && next.fence() > late.fence(), "{kind}");
        let released = late.release().await;
        assert!(
            matches!(released, Err(LockError::Lost)),
            "{kind}: {released:?}"
        );
    }
}

/// The request to give it back is lost, the lease ends, somebody else takes the lock, and the second
/// request finds that: its "no" is not the echo of the first one.
#[tokio::test]
async fn a_release_that_is_late_does_not_pass_for_one_that_was_done() {
    let store = Place::of("memory").await.store().await;
    let mut slow = store.clone();
    slow.late = Some(Arc::new(AtomicBool::new(true)));
    let guard = in_time(&Locks::on(slow, LEASE), "slow").await;
    let other = Locks::on(store, LONG);
    let (released, taken) = tokio::join!(guard.release(), other.acquire("slow"));
    assert!(taken.is_ok());
    assert!(released.is_err(), "{released:?}");
}
