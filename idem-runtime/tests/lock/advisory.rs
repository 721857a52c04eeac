//! Locks of Postgres: numbers, transactions, sessions, poolers.

use std::time::Duration;

use idem_runtime::ErrorKind;
use idem_runtime::error::Retry;
use idem_runtime::lock::advisory::{AdvisoryLock, lock_id, lock_tx, try_lock_tx};
use idem_runtime::lock::{LeaseLock, LockError};
use idem_runtime::store::memory::MemoryStore;
use idem_test_support::poll::drop_after;
use idem_test_support::{Postgres, TestDatabase, postgres};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::pooler::{Choice, pooled};
use crate::support::{LONG, PATIENCE, until};

const NAME: &str = "report:2026-07";

/// Never to be written again: other builds that run at the same time exclude each other by these.
/// Made by another program from the documented algorithm.
const GOLDEN: [(&str, i64, &str); 20] = [
    ("", 3287825736704391170, "e6b6590745fec5e63694c8fe10af5140"),
    ("a", 2749006007792194589, "b8198598fae5132b7e519b4b6e4dc789"),
    (
        "b",
        -7363797046773559311,
        "15f0c196d9c2c98633b9e1f7f7f87187",
    ),
    (
        "A",
        -1435281148472328525,
        "daef540e4a26ea86a692ab9dccc30b13",
    ),
    (
        "report:2026-07",
        -3521992152134842505,
        "1fb36b68b1474591578ce9a1cd9a77fc",
    ),
    (
        "report:2026-08",
        5771080104621743945,
        "8596868ffc873880be3a78875ece759b",
    ),
    (
        "account:7",
        -4710086506312823648,
        "1e2d9538866aa0329188f7aeb7aac6ba",
    ),
    (
        "account:70",
        4138201915413283223,
        "5ff4e7562fb38ce125fcd757c01e783b",
    ),
    (
        "tenant/1/job",
        3881291708708377017,
        "b69054edc0ce5685bd15b477d0d46ce2",
    ),
    (
        "tenant/11/job",
        777787703077722264,
        "b64c0502213bd292e3ab3f87938adcc9",
    ),
    (
        "ä",
        -9002965406655220246,
        "2ce029fcefe6f8f4f285b60809ecc1fd",
    ),
    (
        "日本語",
        -5498432610732263174,
        "336ba8cd6ec0594d9bb6f486a387e2a0",
    ),
    (
        "🔒",
        4750157328203248220,
        "efcd054632d9f9886feaabccdeb6dda5",
    ),
    (
        "a b",
        -6833319248557810942,
        "cbe75ddffa1f77ef26fcb16d9e136c8e",
    ),
    (
        "a\tb",
        -3675624019228626058,
        "7df30626050e3010631110d3be604874",
    ),
    (
        "a\0b",
        -8518817908554308534,
        "ffebb1d78249df8b97dcfa267f087ebb",
    ),
    (
        "%3A",
        -8774748551019792372,
        "3c71aee7d7de62becba6e6595aac132d",
    ),
    (
        "0",
        -6209416760059456751,
        "20fa82bc3a0528b415ada5d626aaeced",
    ),
    (
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        -683116202046282620,
        "6aa679703837eb7a75f9e5370d734504",
    ),
    ("?", 0, ""),
];

#[test]
fn lk_06_the_number_of_a_name_never_changes() {
    let leases = LeaseLock::new(MemoryStore::new());
    let long = "x".repeat(1024);
    for (name, number, record) in GOLDEN {
        let (name, number, record) = match name {
            "?" => (
                &*long,
                -6552729885609171531,
                "af0a3a16c58b436adca3110ca8382e2d",
            ),
            _ => (name, number, record),
        };
        assert_eq!(lock_id(name), number, "{name:?}");
        assert_eq!(leases.id(name).to_string(), record, "{name:?}");
    }
}

async fn database() -> (TestDatabase, PgPool) {
    let database = Postgres::database().await;
    let pool = database.pool(4).await;
    AdvisoryLock::new(pool.clone()).migrate().await.unwrap();
    (database, pool)
}

/// Whether the lock is free, as any other program would find out.
async fn is_free(pool: &PgPool) -> bool {
    let mut tx = pool.begin().await.unwrap();
    let free = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)").bind(lock_id(NAME));
    let free = free.fetch_one(&mut *tx).await.unwrap();
    tx.rollback().await.unwrap();
    free
}

#[tokio::test]
async fn a_transaction_has_the_lock_to_its_end_however_it_ends() {
    let (_database, pool) = database().await;
    for end in 0..4 {
        let mut tx = pool.begin().await.unwrap();
        lock_tx(&mut tx, NAME, PATIENCE).await.unwrap();
        // Twice is once.
        try_lock_tx(&mut tx, NAME).await.unwrap();
        assert!(!is_free(&pool).await);
        match end {
            0 => tx.commit().await.unwrap(),
            1 => tx.rollback().await.unwrap(),
            2 => drop(tx),
            _ => {
                let failed = sqlx::query("SELECT 1 / 0").execute(&mut *tx).await;
                assert!(failed.is_err());
                let asked = try_lock_tx(&mut tx, NAME).await;
                let Err(LockError::Failed(error)) = asked else {
                    panic!("{asked:?}")
                };
                assert_eq!(error.kind(), ErrorKind::TransactionEnded);
                drop(tx);
            }
        }
        until("free", || is_free(&pool)).await;
    }
}

#[tokio::test]
async fn a_wait_that_is_over_or_dropped_leaves_the_transaction_as_it_was() {
    let (_database, pool) = database().await;
    let mut holder = pool.begin().await.unwrap();
    lock_tx(&mut holder, NAME, PATIENCE).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    sqlx::query("CREATE TABLE mine (n INT)")
        .execute(&mut *tx)
        .await
        .unwrap();
    let refused = lock_tx(&mut tx, NAME, Duration::from_millis(60)).await;
    assert!(
        matches!(refused, Err(LockError::Busy { free_in: None, .. })),
        "{refused:?}"
    );
    assert!(try_lock_tx(&mut tx, NAME).await.unwrap_err().is_busy());
    for polls in 0..12 {
        assert!(
            drop_after(lock_tx(&mut tx, NAME, LONG), polls)
                .await
                .is_none()
        );
    }
    sqlx::query("INSERT INTO mine VALUES (1)")
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let kept: i64 = sqlx::query_scalar("SELECT count(*) FROM mine")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(kept, 1);
    holder.commit().await.unwrap();
    assert!(is_free(&pool).await);
}

#[tokio::test]
async fn a_session_and_a_transaction_exclude_each_other() {
    let (_database, pool) = database().await;
    let locks = AdvisoryLock::new(pool.clone());
    let guard = locks.acquire(NAME).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    assert!(try_lock_tx(&mut tx, NAME).await.unwrap_err().is_busy());
    guard.release().await.unwrap();
    try_lock_tx(&mut tx, NAME).await.unwrap();
    assert!(locks.try_acquire(NAME).await.unwrap_err().is_busy());
    tx.commit().await.unwrap();
    locks.run(NAME, async |_| ()).await.unwrap();
    let missing = AdvisoryLock::new(pool.clone())
        .sequence("other.fences")
        .unwrap();
    let Err(LockError::Failed(error)) = missing.acquire(NAME).await else {
        panic!("none")
    };
    assert!(error.to_string().contains("other.fences"), "{error}");
    until("free", || is_free(&pool)).await;
}

/// What the whole matter is about, and that it cannot happen here: whatever the pool's connections
/// are doing, the guard's own is unlocked.
#[tokio::test]
async fn lk_05_a_guard_unlocks_on_the_connection_that_locked() {
    let (database, _) = database().await;
    let pool = database.pool(2).await;
    // Lock on one connection, unlock on the other.
    let (mut one, mut two) = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
    let lock = sqlx::query("SELECT pg_advisory_lock(7)");
    lock.execute(&mut *one).await.unwrap();
    let unlocked: bool = sqlx::query_scalar("SELECT pg_advisory_unlock(7)")
        .fetch_one(&mut *two)
        .await
        .unwrap();
    assert!(!unlocked);
    drop((one, two));

    let locks = AdvisoryLock::new(pool.clone());
    let guard = locks.acquire(NAME).await.unwrap();
    // All that the pool has is taken while the guard unlocks.
    let taken = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
    guard.release().await.unwrap();
    drop(taken);
    assert!(is_free(&pool).await);
    assert!(pool.size() <= 2);
}

async fn behind_pooler(choice: Choice, silence: Duration) -> (TestDatabase, PgPool, AdvisoryLock) {
    let (database, pool) = database().await;
    let options = pooled(&database.options(), choice).await;
    let through = PgPoolOptions::new().connect_with(options).await.unwrap();
    (database, pool, AdvisoryLock::new(through).silence(silence))
}

#[tokio::test]
async fn lk_05_a_pooler_that_changes_sessions_is_refused_and_left_without_the_lock() {
    let (_database, pool, locks) = behind_pooler(
        |sql| usize::from(!sql.contains("pg_try_advisory_lock") && !sql.contains("unlock")),
        LONG,
    )
    .await;
    let refused = locks.acquire(NAME).await;
    let Err(LockError::Failed(error)) = refused else {
        panic!("{refused:?}")
    };
    assert!(
        error.to_string().contains("a pooler stands between"),
        "{error}"
    );
    assert_eq!(error.retry(), Retry::Never);
    assert!(is_free(&pool).await);
}

#[tokio::test]
async fn lk_05_an_unlock_on_another_session_is_an_error() {
    let (_database, pool, locks) =
        behind_pooler(|sql| usize::from(sql.contains("unlock")), LONG).await;
    let guard = locks.acquire(NAME).await.unwrap();
    let released = guard.release().await;
    let Err(LockError::Failed(error)) = released else {
        panic!("{released:?}")
    };
    assert!(
        error.to_string().contains("a pooler stands between"),
        "{error}"
    );
    // The pooler closes its session here, and that ends the lock.
    until("free", || is_free(&pool)).await;
}

/// Somebody else who was given the session has unlocked it.
#[tokio::test]
async fn lk_05_an_unlock_that_is_answered_with_no_is_an_error() {
    let (database, pool, locks) = behind_pooler(|_| 0, LONG).await;
    let guard = locks.acquire(NAME).await.unwrap();
    let lock = lock_id(NAME);
    // As by `pg_advisory_unlock_all` on the same session.
    let terminate = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' \
         AND classid = ({lock}::bigint >> 32 & 4294967295)::oid"
    );
    database.execute(&terminate).await;
    let released = guard.release().await;
    assert!(
        matches!(released, Err(LockError::Failed(_))),
        "{released:?}"
    );
    until("free", || is_free(&pool)).await;
}

#[tokio::test]
async fn lk_05_a_session_that_changes_later_is_a_lock_that_is_lost() {
    static CHANGED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let choice: Choice = |_| CHANGED.load(std::sync::atomic::Ordering::SeqCst);
    let (_database, pool, locks) = behind_pooler(choice, Duration::from_secs(2)).await;
    let guard = locks.acquire(NAME).await.unwrap();
    assert!(!guard.is_lost());
    CHANGED.store(1, std::sync::atomic::Ordering::SeqCst);
    guard.lost().await;
    assert!(matches!(guard.release().await, Err(LockError::Lost)));
    until("free", || is_free(&pool)).await;
}

#[tokio::test]
async fn many_processes_may_migrate_at_once() {
    let database = Postgres::database().await;
    let locks = AdvisoryLock::new(postgres::pool(database.url(), 8).await);
    let all = (0..8).map(|_| {
        let locks = locks.clone();
        tokio::spawn(async move { locks.migrate().await })
    });
    let all: Vec<_> = all.collect();
    for one in all {
        one.await.unwrap().unwrap();
    }
    locks.acquire(NAME).await.unwrap().release().await.unwrap();
}
