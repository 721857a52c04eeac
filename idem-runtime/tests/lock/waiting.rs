//! Standing in line, asking, and leaving.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use idem_runtime::error::Retry;
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::key::RecordId;
use idem_runtime::lock::{LeaseLock, LockError, RunError};
use idem_runtime::store::{Held, Request, Reserved, Store};
use idem_runtime::{Effect, ErrorKind};
use idem_test_support::poll::drop_after;

use crate::support::{ALL, Hints, LEASED, LONG, Locks, PATIENCE, Place, until};

const NAME: &str = "waiting";

fn lease_lock(locks: &Locks) -> &LeaseLock<crate::support::AnyStore> {
    match locks {
        Locks::Lease(locks) => locks,
        Locks::Session(..) => panic!("a session"),
    }
}

/// A overruns, B has the lock, A gives back what it no longer has, C waits and is woken up all the
/// time: C is not in before B is out.
#[tokio::test]
async fn lk_11_a_stale_release_lets_nobody_in() {
    for kind in LEASED {
        let store = Place::of(kind).await.store().await;
        let b = Locks::on(store.clone(), LONG);
        let id = lease_lock(&b).id(NAME);
        let request = Request::new(id, Fingerprint::NONE, Duration::from_millis(100));
        let Reserved::Granted(stale) = store.reserve(&request).await.unwrap() else {
            panic!("it was free");
        };
        let guard = b.acquire(NAME).await.unwrap();
        let asking = store.counting().hints(Hints::Always);
        let c = Locks::on(asking.clone(), LONG);
        let waiting = tokio::spawn(async move { c.acquire(NAME).await });
        until("C asks", async || asking.requests() > 0).await;
        assert_eq!(store.release(&stale).await.unwrap(), Held::No, "{kind}");
        let asked = asking.requests();
        until("C asks again", async || asking.requests() > asked + 2).await;
        assert!(!waiting.is_finished(), "{kind}");
        assert!(!guard.is_lost());
        let last = guard.fence();
        guard.release().await.unwrap();
        let entered = waiting.await.unwrap().unwrap();
        assert!(entered.fence() > last);
        entered.release().await.unwrap();
    }
}

/// The same with a holder's guard that overran, given back by its own `release`.
#[tokio::test]
async fn lk_11_a_late_release_says_so_and_changes_nothing() {
    let store = Place::of("memory").await.store().await;
    let a = Locks::on(store.clone(), Duration::from_millis(500));
    let (b, c) = (Locks::on(store.clone(), LONG), Locks::on(store, LONG));
    let late = a.acquire(NAME).await.unwrap();
    // Nothing of A runs meanwhile: this is the only thread.
    std::thread::sleep(Duration::from_millis(600));
    let Ok(guard) = drop_after(b.acquire(NAME), 1).await.expect("it is free") else {
        panic!("it is free");
    };
    let waiting = tokio::spawn(async move { c.acquire(NAME).await });
    tokio::task::yield_now().await;
    let released = late.release().await;
    assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished() && !guard.is_lost());
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn in_one_process_who_came_first_is_first_and_who_left_is_not_waited_for() {
    for kind in ALL {
        let locks = Place::of(kind).await.locks(LONG).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let guard = locks.acquire(NAME).await.unwrap();
        let mut tasks = Vec::new();
        let mut leaving = Vec::new();
        for n in 0..30 {
            let (locks, order) = (locks.clone(), Arc::clone(&order));
            let mut turn = Box::pin(async move {
                let guard = locks.acquire(NAME).await.unwrap();
                order.lock().unwrap().push(n);
                guard.release().await.unwrap();
            });
            // It stands in line from its first poll on.
            let mut context = Context::from_waker(Waker::noop());
            assert!(turn.as_mut().poll(&mut context).is_pending());
            if n % 5 == 0 {
                leaving.push(turn);
            } else {
                tasks.push(tokio::spawn(turn));
            }
        }
        drop(leaving);
        guard.release().await.unwrap();
        for task in tasks {
            task.await.unwrap();
        }
        let came: Vec<_> = (0..30).filter(|n| n % 5 != 0).collect();
        assert_eq!(*order.lock().unwrap(), came, "{kind}");
    }
}

/// A hundred who wait for half a minute: one asks, at a quarter of a second apart.
#[tokio::test(start_paused = true)]
async fn a_hundred_who_wait_ask_as_often_as_one() {
    let store = Place::of("memory").await.store().await;
    let elsewhere = Locks::on(store.clone(), LONG);
    let _held = elsewhere.acquire(NAME).await.unwrap();
    for hints in [Hints::Always, Hints::True, Hints::Never] {
        let asking = store.counting().hints(hints);
        let locks = Locks::on(asking.clone(), LONG).wait(Duration::from_secs(30));
        let waiters: Vec<_> = (0..100)
            .map(|_| {
                let locks = locks.clone();
                tokio::spawn(async move { locks.acquire(NAME).await })
            })
            .collect();
        for waiter in waiters {
            let busy = waiter.await.unwrap().unwrap_err();
            assert!(busy.is_busy());
            assert!(busy.effect() == Effect::None);
        }
        // 30 s in pauses of at least 125 ms, the growing ones and the hints before that.
        assert!(asking.requests() < 300, "{}", asking.requests());
        assert!(asking.requests() > 100, "{}", asking.requests());
    }
}

/// A line that is never empty does not keep the lock from another process, which has to ask.
#[tokio::test(start_paused = true)]
async fn a_line_that_never_ends_leaves_the_lock_to_others() {
    let store = Place::of("memory").await.store().await.hints(Hints::Never);
    let (line, other) = (Locks::on(store.clone(), LONG), Locks::on(store, LONG));
    let line: Vec<_> = (0..3)
        .map(|_| {
            let line = line.clone();
            tokio::spawn(async move {
                loop {
                    let guard = line.acquire(NAME).await.unwrap();
                    // Long against the moment in which it changes hands.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for _ in 0..5 {
        let in_line = async || other.holder(NAME).await.is_some();
        until("the line has it", in_line).await;
        let guard = other
            .clone()
            .wait(Duration::from_secs(20))
            .acquire(NAME)
            .await;
        guard.unwrap().release().await.unwrap();
    }
    for task in line {
        task.abort();
    }
}

/// While it is held here nobody needs to ask the store at all.
#[tokio::test(start_paused = true)]
async fn who_waits_for_its_own_process_asks_nothing() {
    let store = Place::of("memory").await.store().await;
    let locks = Locks::on(store.clone(), LONG).wait(Duration::from_secs(30));
    let guard = locks.acquire(NAME).await.unwrap();
    assert_eq!(store.requests(), 1);
    let waiters = (0..100).map(|_| locks.acquire(NAME));
    let waiters: Vec<_> = waiters.map(Box::pin).collect();
    for waiter in waiters {
        assert!(waiter.await.unwrap_err().is_busy());
    }
    for _ in 0..100 {
        assert!(locks.try_acquire(NAME).await.unwrap_err().is_busy());
    }
    assert_eq!(store.requests(), 1);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn busy_says_when_it_may_be_free() {
    for kind in LEASED {
        let store = Place::of(kind).await.store().await;
        let (locks, others) = (Locks::on(store.clone(), LONG), Locks::on(store, LONG));
        let guard = locks.acquire(NAME).await.unwrap();
        for (asker, waits) in [(&locks, false), (&others, false), (&others, true)] {
            let budget = Duration::from_millis(if waits { 50 } else { 0 });
            let busy = asker.clone().wait(budget).acquire(NAME).await.unwrap_err();
            let LockError::Busy { name, free_in, .. } = &busy else {
                panic!("{kind}: {busy}");
            };
            assert_eq!(name, NAME);
            let free_in = free_in.expect("a lease ends");
            assert!(free_in <= LONG && free_in > LONG / 2, "{kind}: {free_in:?}");
            assert_eq!(busy.retry(), Retry::Later(Some(free_in)));
        }
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_lock_that_is_none_is_refused_before_the_store_is_asked() {
    let store = Place::of("memory").await.store().await;
    for lease in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let refused = LeaseLock::new(store.clone())
            .lease(lease)
            .acquire(NAME)
            .await;
        let Err(LockError::Failed(error)) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(error.kind(), ErrorKind::InvalidLease);
    }
    let refused = LeaseLock::new(store.clone()).acquire("").await;
    let Err(LockError::Failed(error)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(error.kind(), ErrorKind::EmptyKeyPart);
    assert_eq!(store.requests(), 0);
}

#[tokio::test]
async fn a_body_that_asks_for_its_own_lock_is_refused() {
    for kind in ALL {
        let locks = Place::of(kind).await.locks(LONG).await;
        let guard = locks.acquire(NAME).await.unwrap();
        let fence = guard.fence();
        guard
            .run(async |given| {
                assert_eq!(given, fence);
                assert_eq!(idem_runtime::engine::fence(), Some(fence));
                let again = locks.acquire(NAME).await;
                assert!(
                    matches!(again, Err(LockError::Reentrant)),
                    "{kind}: {again:?}"
                );
                let other = locks.acquire("another").await.unwrap();
                other.release().await.unwrap();
            })
            .await
            .unwrap();
    }
}

/// A lock and a function of the same scope and key are two records.
#[tokio::test]
async fn a_lock_is_nobody_elses_record() {
    let store = Place::of("memory").await.store().await;
    let locks = LeaseLock::new(store.clone());
    for types in [&[][..], &["x"][..], &["", ""][..]] {
        assert_ne!(locks.id(NAME), RecordId::new("", "idem.lock", types, NAME));
    }
    let function = RecordId::new("", "idem.lock", &[], NAME);
    let request = Request::new(function, Fingerprint::NONE, LONG);
    let Reserved::Granted(held) = store.reserve(&request).await.unwrap() else {
        panic!("it was free");
    };
    let guard = locks.try_acquire(NAME).await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(store.release(&held).await.unwrap(), Held::Yes);
}

/// Many find nothing at once: one does it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_done_meanwhile_is_found_under_the_lock() {
    for kind in LEASED {
        let store = Place::of(kind).await.store().await;
        let (done, runs) = (Arc::new(Mutex::new(None)), Arc::new(AtomicUsize::new(0)));
        let together = Arc::new(tokio::sync::Barrier::new(20));
        let tasks: Vec<_> = (0..20)
            .map(|n| {
                // Two lines: what one process cannot see the store must.
                let locks = LeaseLock::new(store.clone()).lease(LONG).wait(PATIENCE);
                let (done, runs) = (Arc::clone(&done), Arc::clone(&runs));
                let together = Arc::clone(&together);
                tokio::spawn(async move {
                    let first = AtomicUsize::new(0);
                    let check = async || {
                        let found = *done.lock().unwrap();
                        if first.fetch_add(1, Ordering::SeqCst) == 0 {
                            together.wait().await;
                        }
                        found
                    };
                    let body = async |_| {
                        runs.fetch_add(1, Ordering::SeqCst);
                        tokio::task::yield_now().await;
                        *done.lock().unwrap() = Some(n);
                        n
                    };
                    locks.check_then(NAME, check, body).await
                })
            })
            .collect();
        let mut answers = Vec::new();
        for task in tasks {
            answers.push(task.await.unwrap().unwrap());
        }
        assert_eq!(runs.load(Ordering::SeqCst), 1, "{kind}");
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{kind}");
        let found = LeaseLock::new(store.counting());
        let unasked = async |_| panic!("it is done");
        let again = found.check_then(NAME, async || Some(1), unasked).await;
        assert_eq!(again.unwrap(), 1);
    }
}

/// Dropped at any await, a call leaves the lock to the next one.
#[tokio::test]
async fn a_call_that_is_dropped_leaves_the_lock_free() {
    for kind in ALL {
        let place = Place::of(kind).await;
        let locks = match kind {
            "session" => place.locks(LONG).await,
            // A request that overtakes its own undoing ends with its lease.
            _ => place.locks(Duration::from_secs(5)).await,
        };
        let mut polls = 0;
        loop {
            let acquired = drop_after(locks.acquire(NAME), polls).await;
            let next = match acquired {
                Some(acquired) => acquired.unwrap(),
                None => locks.acquire(NAME).await.unwrap(),
            };
            // And so with a release,
            let released = drop_after(next.release(), polls).await;
            assert!(released.is_none_or(|released| released.is_ok()), "{kind}");
            // and with all of it.
            let guard = locks.acquire(NAME).await.unwrap();
            let ran = drop_after(guard.run(async |_| tokio::task::yield_now().await), polls).await;
            assert!(ran.as_ref().is_none_or(Result::is_ok), "{kind}: {ran:?}");
            polls += 1;
            if ran.is_some() && polls > 12 {
                break;
            }
        }
        locks.acquire(NAME).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn errors_tell_what_they_mean() {
    let lost: RunError<u8> = RunError::from(LockError::Lost);
    assert_eq!(lost.into_lock_error().effect(), Effect::Unknown);
    let store = Place::of("memory").await.store().await;
    let locks = LeaseLock::new(store);
    let _guard = locks.acquire("secret").await.unwrap();
    let busy = locks.try_acquire("secret").await.unwrap_err();
    let text = busy.to_string();
    assert!(
        text.contains("\"secret\"") && text.contains("effect: none"),
        "{text}"
    );
}

/// One task that takes the lock again as soon as it has given it back: nobody stands in line meanwhile,
/// and the others must get in all the same.
#[tokio::test(start_paused = true)]
async fn who_takes_it_again_and_again_leaves_the_others_a_moment() {
    let store = Place::of("memory").await.store().await;
    let (greedy, other) = (Locks::on(store.clone(), LONG), store.hints(Hints::Never));
    let first = greedy.acquire(NAME).await.unwrap();
    let turns = Arc::new(AtomicUsize::new(0));
    let again = tokio::spawn({
        let turns = Arc::clone(&turns);
        async move {
            let mut guard = first;
            loop {
                tokio::time::sleep(Duration::from_millis(40)).await;
                guard.release().await.unwrap();
                guard = greedy.acquire(NAME).await.unwrap();
                turns.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let other = Locks::on(other, LONG).wait(Duration::from_secs(5));
    for _ in 0..3 {
        let guard = other.acquire(NAME).await.unwrap();
        guard.release().await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    // A moment every two seconds, and not all the time.
    let turns = turns.load(Ordering::SeqCst);
    assert!(turns > 120, "{turns}");
    again.abort();
}
