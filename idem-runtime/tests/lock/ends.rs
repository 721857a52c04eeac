//! LK-04 and LK-10: every way in which a holder ends.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use idem_runtime::clock::Moment;
use idem_runtime::lock::{LockError, LockGuard, OnDrop};
use idem_test_support::child::{Args, say};

use crate::support::{LEASED, LONG, Locks, Place, SHARED, until};

idem_test_support::child_roles!(holder);

const LEASE: Duration = Duration::from_millis(900);
const NAME: &str = "ends";

/// Holds on until the lease was seen to be renewed.
async fn renewed(locks: &Locks) -> LockGuard {
    loop {
        let guard = locks.acquire(NAME).await.unwrap();
        let first = locks.lease_until(NAME).await;
        until("renewed", async || {
            guard.is_lost() || locks.lease_until(NAME).await > first
        })
        .await;
        // On a slow machine it comes too late now and then.
        if !guard.is_lost() {
            return guard;
        }
    }
}

async fn is_free(locks: &Locks) {
    until("given back", async || locks.holder(NAME).await.is_none()).await;
}

/// Nobody gave it back and nobody renews it: the end of its lease stays, and then somebody else has
/// it, no earlier.
async fn ends_with_its_lease(locks: &Locks, others: &Locks) {
    // A request that was on its way may still have been heard.
    tokio::time::sleep(LEASE / 3).await;
    let held = locks.holder(NAME).await.expect("it is held");
    let next = loop {
        match others.try_acquire(NAME).await {
            Ok(next) => break next,
            Err(LockError::Busy { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        if let Some(now) = locks.holder(NAME).await
            && now.fence == held.fence
        {
            assert_eq!(now.lease_until, held.lease_until, "somebody renews it");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let now = locks.holder(NAME).await.unwrap();
    assert!(now.fence > held.fence && now.fence == next.fence());
    assert!(
        at_least(now.since, held.lease_until.unwrap()),
        "{held:?} {now:?}"
    );
    next.release().await.unwrap();
}

/// An end is rounded up to a millisecond and a beginning down.
fn at_least(time: Moment, end: Moment) -> bool {
    time.as_millis() + 1 >= end.as_millis()
}

async fn dropped(locks: &Locks) {
    drop(renewed(locks).await);
}

async fn early_return(locks: &Locks) {
    async fn fails(locks: &Locks) -> Result<(), LockError> {
        let _guard = renewed(locks).await;
        Err(LockError::Reentrant)
    }
    assert!(fails(locks).await.is_err());
}

async fn panics(locks: &Locks) {
    let locks = locks.clone();
    let task = tokio::spawn(async move {
        let _guard = renewed(&locks).await;
        std::panic::resume_unwind(Box::new("in the body"));
    });
    assert!(task.await.unwrap_err().is_panic());
}

async fn panics_in_run(locks: &Locks) {
    let locks = locks.clone();
    let task = tokio::spawn(async move {
        let guard = renewed(&locks).await;
        let body = async |_| std::panic::resume_unwind(Box::new("in the body"));
        guard.run(body).await.unwrap();
    });
    assert!(task.await.unwrap_err().is_panic());
}

async fn future_is_dropped(locks: &Locks) {
    let guard = renewed(locks).await;
    let (begun, mut began) = tokio::sync::mpsc::channel::<()>(1);
    let body = async |_| {
        begun.send(()).await.unwrap();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ran = guard.run(body) => assert!(ran.is_err()),
        _ = began.recv() => {}
    }
}

async fn task_is_aborted(locks: &Locks) {
    let (begun, began) = tokio::sync::oneshot::channel();
    let held = locks.clone();
    let task = tokio::spawn(async move {
        let _guard = renewed(&held).await;
        begun.send(()).unwrap();
        std::future::pending::<()>().await;
    });
    began.await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
}

macro_rules! every_way {
    ($locks:ident => $then:expr) => {{
        dropped(&$locks).await;
        $then;
        early_return(&$locks).await;
        $then;
        panics(&$locks).await;
        $then;
        panics_in_run(&$locks).await;
        $then;
        future_is_dropped(&$locks).await;
        $then;
        task_is_aborted(&$locks).await;
        $then;
    }};
}

async fn given_back(kind: &'static str) {
    let locks = Place::of(kind).await.locks(LEASE).await;
    every_way!(locks => is_free(&locks).await);
}

async fn held_to_the_end(kind: &'static str) {
    let store = Place::of(kind).await.store().await;
    let locks = Locks::on(store.clone(), LEASE).on_drop(OnDrop::Hold);
    let others = Locks::on(store, LEASE);
    every_way!(locks => ends_with_its_lease(&locks, &others).await);
}

macro_rules! on_each_store {
    ($($test:ident: $way:ident $kind:literal;)*) => {$(
        #[tokio::test]
        async fn $test() {
            $way($kind).await;
        }
    )*};
}

on_each_store! {
    lk_04_memory_gives_back: given_back "memory";
    lk_04_redis_gives_back: given_back "redis";
    lk_04_postgres_gives_back: given_back "postgres";
    lk_04_sqlite_gives_back: given_back "sqlite";
    lk_04_mysql_gives_back: given_back "mysql";
    lk_04_mysql_holds_to_the_end_of_the_lease: held_to_the_end "mysql";
    lk_04_memory_holds_to_the_end_of_the_lease: held_to_the_end "memory";
    lk_04_redis_holds_to_the_end_of_the_lease: held_to_the_end "redis";
    lk_04_postgres_holds_to_the_end_of_the_lease: held_to_the_end "postgres";
    lk_04_sqlite_holds_to_the_end_of_the_lease: held_to_the_end "sqlite";
}

/// Its guard outlives the runtime: nobody renews, and the guard knows.
#[test]
fn lk_04_a_runtime_that_ends_renews_no_more() {
    let other = tokio::runtime::Runtime::new().unwrap();
    for kind in LEASED {
        // Memory is seen by whoever has the store; the others are opened in each runtime.
        let place = other.block_on(Place::of(kind));
        let watching = other.block_on(place.store());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build();
        let runtime = runtime.unwrap();
        let guard = runtime.block_on(async {
            let store = match kind {
                "memory" => watching.clone(),
                _ => place.store().await,
            };
            renewed(&Locks::on(store, LEASE)).await
        });
        runtime.shutdown_background();
        other.block_on(async {
            let (locks, others) = (
                Locks::on(watching.clone(), LEASE),
                Locks::on(watching.clone(), LEASE),
            );
            ends_with_its_lease(&locks, &others).await;
            assert!(guard.is_lost(), "{kind}");
            guard.lost().await;
            let released = guard.release().await;
            assert!(
                matches!(released, Err(LockError::Failed(_))),
                "{released:?}"
            );
        });
    }
}

/// A guard may be dropped where there is no runtime.
#[tokio::test]
async fn a_guard_is_dropped_outside_any_runtime() {
    for kind in LEASED {
        let locks = Place::of(kind).await.locks(LONG).await;
        let guard = locks.acquire(NAME).await.unwrap();
        std::thread::spawn(move || drop(guard)).join().unwrap();
        is_free(&locks).await;
    }
}

#[tokio::test]
async fn a_panicking_check_leaves_nothing() {
    let Locks::Lease(locks) = Place::of("memory").await.locks(LONG).await else {
        unreachable!("a lease");
    };
    let checks = std::sync::atomic::AtomicUsize::new(0);
    let checked = AssertUnwindSafe(locks.check_then(
        NAME,
        async || {
            if checks.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 1 {
                std::panic::resume_unwind(Box::new("in the second check"));
            }
            None
        },
        async |_| 1,
    ));
    let (begun, ended) = tokio::sync::oneshot::channel::<()>();
    let caught = {
        let _begun = begun;
        futures_catch(checked).await
    };
    assert!(caught.is_err());
    assert!(ended.await.is_err());
    let all = Locks::Lease(locks);
    is_free(&all).await;
}

async fn futures_catch<F: Future>(future: AssertUnwindSafe<F>) -> Result<F::Output, ()> {
    let mut future = std::pin::pin!(future.0);
    std::future::poll_fn(move |context| {
        let poll = AssertUnwindSafe(|| future.as_mut().poll(context));
        match std::panic::catch_unwind(poll) {
            Ok(poll) => poll.map(Ok),
            Err(_) => std::task::Poll::Ready(Err(())),
        }
    })
    .await
}

async fn holder(args: Args) {
    let locks = Locks::of(&args).await;
    let guard = locks.acquire(NAME).await.unwrap();
    say(&guard.fence().to_string());
    std::future::pending::<()>().await;
    drop(guard);
}

#[tokio::test]
async fn lk_10_a_killed_holder_keeps_its_lock_for_its_lease() {
    const LIFE: Duration = Duration::from_secs(3);
    for kind in SHARED {
        let place = Place::of(kind).await;
        let mut child = child("holder")
            .arg(kind)
            .arg(&place.url)
            .arg(&place.space)
            .arg(LIFE.as_millis())
            .spawn();
        let fence = child.next_message().await;
        let locks = place.locks(LIFE).await;
        // It is alive, and so is its lock.
        let first = locks.lease_until(NAME).await;
        until("renewed", async || locks.lease_until(NAME).await > first).await;
        child.kill9();
        let held = locks
            .holder(NAME)
            .await
            .expect("the status shows the holder");
        assert_eq!(held.fence.to_string(), fence, "{kind}");
        match locks.try_acquire(NAME).await {
            Err(LockError::Busy { free_in, .. }) => {
                assert!(free_in.unwrap() <= LIFE, "{kind}: {free_in:?}");
            }
            // A slow machine: the lease is over.
            Ok(guard) => guard.release().await.unwrap(),
            Err(error) => panic!("{kind}: {error}"),
        }
        let next = locks.acquire(NAME).await.unwrap();
        let now = locks.holder(NAME).await.unwrap();
        assert!(next.fence() > held.fence, "{kind}");
        assert!(
            at_least(now.since, held.lease_until.unwrap()),
            "{kind}: {held:?} {now:?}"
        );
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn lk_10_a_killed_session_frees_its_lock_at_once() {
    let place = Place::of("session").await;
    let mut child = child("holder")
        .arg("session")
        .arg(&place.url)
        .arg(&place.space)
        .arg(LONG.as_millis())
        .spawn();
    let fence: u64 = child.next_message().await.parse().unwrap();
    let locks = place.locks(LONG).await;
    assert!(locks.try_acquire(NAME).await.unwrap_err().is_busy());
    child.kill9();
    let next = locks.acquire(NAME).await.unwrap();
    assert!(next.fence().get() > fence);
    next.release().await.unwrap();
}
