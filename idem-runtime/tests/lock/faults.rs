//! Connections that are cut, servers that are silent.

use std::net::ToSocketAddrs;
use std::time::Duration;

use idem_runtime::lock::advisory::AdvisoryLock;
use idem_runtime::lock::{LeaseLock, LockError, LockGuard};
use idem_runtime::store::Store;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::sql::LeasedSql;
use idem_test_support::proxy::{Direction, Fault, Wire};
use idem_test_support::{Postgres, Proxy, Redis};
use sqlx::PgPool;

use crate::support::{PATIENCE, unique, until};

const LEASE: Duration = Duration::from_millis(1500);
const SILENCE: Duration = Duration::from_secs(2);
const NAME: &str = "cut";

/// How the network fails.
#[derive(Clone, Copy, Debug)]
enum Fails {
    Cut,
    NoAnswers,
    NoRequests,
    /// Answers were slow before there were none: the lease counts from the request.
    SlowAnswersThenCut,
}

impl Fails {
    fn on(self, proxy: &Proxy) {
        match self {
            Self::Cut | Self::SlowAnswersThenCut => {
                proxy.refuse(true);
                proxy.cut_all();
            }
            Self::NoAnswers => proxy.hold(Direction::ToClient),
            Self::NoRequests => proxy.hold(Direction::ToServer),
        }
    }
}

/// Holds on until the lease was seen to be renewed.
async fn renewed<S: Store, T: Store>(near: &LeaseLock<S>, far: &LeaseLock<T>) -> LockGuard {
    for _ in 0..20 {
        // On a slow machine answers come too late now and then.
        let Ok(guard) = near.acquire(NAME).await else {
            continue;
        };
        renewed_again(&guard, far).await;
        if !guard.is_lost() {
            return guard;
        }
    }
    panic!("it is never renewed in time");
}

async fn renewed_again<T: Store>(guard: &LockGuard, far: &LeaseLock<T>) {
    let end = async || {
        let holder = far.holder(NAME).await.unwrap();
        holder.and_then(|holder| holder.lease_until)
    };
    let first = end().await;
    until("renewed", async || guard.is_lost() || end().await > first).await;
}

/// Who cannot reach the store any more knows that it lost the lock when another one can have it, and
/// not later.
async fn loses<S: Store, T: Store>(proxy: &Proxy, through: S, direct: T) {
    for fails in [
        Fails::Cut,
        Fails::NoAnswers,
        Fails::NoRequests,
        Fails::SlowAnswersThenCut,
    ] {
        let near = LeaseLock::new(through.clone()).lease(LEASE).wait(PATIENCE);
        let far = LeaseLock::new(direct.clone()).lease(LEASE).wait(PATIENCE);
        let guard = renewed(&near, &far).await;
        if matches!(fails, Fails::SlowAnswersThenCut) {
            proxy.delay(Direction::ToClient, LEASE / 10);
            renewed_again(&guard, &far).await;
            // Its answer arrives, and the next request is not sent yet.
            tokio::time::sleep(LEASE / 6).await;
        }
        fails.on(proxy);
        let next = far.acquire(NAME).await.unwrap();
        assert!(guard.is_lost(), "{fails:?}");
        guard.lost().await;
        assert!(next.fence() > guard.fence());
        let lost = guard.release().await;
        assert!(lost.is_err(), "{fails:?}");
        drop(next);
        proxy.heal();
        // Whatever was on its way has arrived.
        until("usable again", async || match near.acquire(NAME).await {
            Ok(guard) => guard.release().await.is_ok(),
            Err(_) => false,
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_cut_off_from_postgres_knows_in_time() {
    let database = Postgres::database().await;
    let (proxy, pool) = (database.proxy(), database.pool(4).await);
    let direct = LeasedSql::new(pool);
    direct.migrate().await.unwrap();
    let through = LeasedSql::<sqlx::Postgres>::builder().limit(LEASE / 3);
    let through = through.build(database.pool_through(&proxy, 4));
    loses(&proxy, through, direct).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_cut_off_from_redis_knows_in_time() {
    let url = Redis::url();
    let (_, server) = url.split_once("://").unwrap();
    let (server, path) = server.split_once('/').unwrap_or((server, ""));
    let server = server.to_socket_addrs().unwrap().next().unwrap();
    let proxy = Proxy::start(server, Wire::Raw);
    let space = unique();
    let direct = RedisStore::builder().namespace(&space);
    let direct = direct.connect(url.as_str()).await.unwrap();
    let through = RedisStore::builder().namespace(&space).limit(LEASE / 3);
    let url = format!("redis://{}/{path}", proxy.addr());
    let through = through.connect(url.as_str()).await.unwrap();
    loses(&proxy, through, direct).await;
}

async fn locks() -> (idem_test_support::TestDatabase, AdvisoryLock, PgPool) {
    let database = Postgres::database().await;
    let pool = database.pool(4).await;
    let locks = AdvisoryLock::new(pool.clone()).wait(PATIENCE);
    locks.migrate().await.unwrap();
    (database, locks, pool)
}

/// A session's lock is free when the session ends: the next holder may come before this one knows,
/// and that it was lost shows all the same. What is written meanwhile is what the number is for.
#[tokio::test]
async fn a_session_that_is_cut_is_a_lock_that_is_lost() {
    let (database, direct, _) = locks().await;
    let proxy = database.proxy();
    let through = AdvisoryLock::new(database.pool_through(&proxy, 4)).silence(SILENCE);
    for fails in [Fails::Cut, Fails::NoAnswers, Fails::NoRequests] {
        let guard = through.acquire(NAME).await.unwrap();
        assert!(direct.try_acquire(NAME).await.unwrap_err().is_busy());
        fails.on(&proxy);
        guard.lost().await;
        assert!(guard.is_lost(), "{fails:?}");
        // It closes its end, and the server lets go.
        proxy.heal();
        let next = direct.acquire(NAME).await.unwrap();
        assert!(next.fence() > guard.fence());
        assert!(matches!(guard.release().await, Err(LockError::Lost)));
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_session_that_the_server_ends_is_a_lock_that_is_lost() {
    let (database, locks, pool) = locks().await;
    let locks = locks.silence(SILENCE);
    let held = locks.acquire(NAME).await.unwrap();
    let body = async |_| {
        let ended = sqlx::query(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'",
        );
        ended.execute(&pool).await.unwrap();
        std::future::pending::<()>().await;
    };
    let ran = held.run(body).await;
    assert!(ran.is_err(), "{ran:?}");
    locks.acquire(NAME).await.unwrap().release().await.unwrap();
    drop(database);
}

/// An answer that is lost leaves nothing behind for longer than a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_whose_answer_was_lost_is_not_lost_itself() {
    let database = Postgres::database().await;
    let (proxy, pool) = (database.proxy(), database.pool(4).await);
    LeasedSql::new(pool.clone()).migrate().await.unwrap();
    let through = LeasedSql::new(database.pool_through(&proxy, 4));
    let locks = LeaseLock::new(through)
        .lease(Duration::from_secs(5))
        .wait(PATIENCE);
    locks.acquire(NAME).await.unwrap().release().await.unwrap();
    for pattern in ["INSERT INTO", "DELETE FROM"] {
        let armed = proxy.on(pattern, Fault::CutAnswer);
        // Asked again by the store, it is the same owner's: granted once, given back once.
        let guard = locks.acquire(NAME).await.unwrap();
        guard.release().await.unwrap();
        assert!(armed.fired(), "{pattern}");
        let direct = LeaseLock::new(LeasedSql::new(pool.clone()));
        direct
            .try_acquire(NAME)
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}
