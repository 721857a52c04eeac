//! The lease: renewed while the body runs, and what happens when it is lost.

use std::sync::mpsc;

use idem_runtime::Effect;
use idem_runtime::engine::fence;
use idem_runtime::testing::fault::{Fault, Step};
use tokio::time::Instant;

use super::*;

#[tokio::test(start_paused = true)]
async fn renewal_holds_the_lease_while_a_slow_body_runs() {
    let (store, runs) = (store(), Runs::default());
    let first = tokio::spawn({
        let (store, body) = (store.clone(), runs.body(LEASE * 10, 1));
        async move { call(&store, &REJECTING, "7", body).await }
    });
    for _ in 0..29 {
        sleep(millis(100)).await;
        let answer = call(&store, &REJECTING, "7", runs.body(LEASE, 2)).await;
        let error = error(answer);
        assert_eq!(error.kind(), ErrorKind::InProgress);
        assert!(matches!(error.retry(), idem_runtime::Retry::Later(Some(after)) if after <= LEASE));
    }
    assert_eq!(first.await.unwrap().unwrap(), 1);
    assert_eq!(runs.count(), 1);
    assert!(
        (28..=31).contains(&store.count(Step::Renew)),
        "{}",
        store.count(Step::Renew)
    );
    assert_eq!(quick(&store, &REJECTING, 2).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_now_and_then_is_repeated_in_time() {
    let (store, runs) = (store(), Runs::default());
    store.at(Step::Renew, 1, Fault::Before);
    store.at(Step::Renew, 2, Fault::After);
    store.at(Step::Renew, 4, Fault::HangBefore);
    store.at(Step::Renew, 6, Fault::HangAfter);
    store.at(Step::Renew, 8, Fault::Delay(millis(60)));
    let answer = call(&store, &REJECTING, "7", runs.body(LEASE * 10, 1)).await;
    assert_eq!(answer.unwrap(), 1);
}

/// The store is asked for one more lease before live work is dropped; then the body ends.
#[tokio::test(start_paused = true)]
async fn a_body_whose_lease_is_not_renewed_in_time_is_told_so() {
    for fault in [Fault::Before, Fault::HangBefore] {
        let (store, runs) = (store(), Runs::default());
        store.always(Step::Renew, fault);
        let begun = Instant::now();
        let answer = call(&store, &REJECTING, "7", runs.body(LEASE * 10, 1)).await;
        let took = begun.elapsed();
        assert!(
            took >= LEASE && took <= LEASE * 2 + millis(5),
            "{fault:?} {took:?}"
        );
        let error = error(answer);
        assert_eq!(
            (error.kind(), error.effect()),
            (ErrorKind::LeaseExpired, Effect::Unknown)
        );
        assert!(
            !error.to_string().contains("took the reservation over"),
            "{error}"
        );
    }
}

/// Nobody else has called: a store that was slow for longer than the lease ends no live work.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_slow_for_longer_than_the_lease_ends_no_live_body() {
    // As a table that is locked for 1.3 leases.
    let (store, runs) = (store(), Runs::default());
    store.always(Step::Renew, Fault::HangBefore);
    let slow = tokio::spawn({
        let (store, body) = (store.clone(), runs.body(LEASE * 5, 1));
        async move { call(&store, &REJECTING, "7", body).await }
    });
    sleep(LEASE - millis(1)).await;
    store.heal();
    store.next(Step::Renew, Fault::Delay(LEASE * 2 / 3));
    assert_eq!(slow.await.unwrap().unwrap(), 1);
    assert_eq!(quick(&store, &REJECTING, 2).await.unwrap(), 1);
    assert_eq!(runs.count(), 1);

    // One request that takes longer than the pauses between them, but not than a lease.
    let (store, runs) = (self::store(), Runs::default());
    store.always(Step::Renew, Fault::Delay(LEASE * 2 / 3));
    let answer = call(&store, &REJECTING, "7", runs.body(LEASE * 10, 1)).await;
    assert_eq!(answer.unwrap(), 1);
}

/// Asked once more at the end of the lease, the store says that another call has the record.
#[tokio::test(start_paused = true)]
async fn a_body_whose_record_was_taken_over_is_told_that() {
    let (store, runs) = (store(), Runs::default());
    store.always(Step::Renew, Fault::Before);
    let slow = tokio::spawn({
        let (store, body) = (store.clone(), runs.body(LEASE * 10, 1));
        async move { call(&store, &REJECTING, "7", body).await }
    });
    sleep(LEASE + millis(1)).await;
    assert_eq!(quick(&store, &REJECTING, 2).await.unwrap(), 2);
    store.heal();
    let lost = error(slow.await.unwrap());
    assert_eq!(
        (lost.kind(), lost.effect()),
        (ErrorKind::LostOwnership, Effect::Unknown)
    );
    assert_eq!(quick(&store, &REJECTING, 3).await.unwrap(), 2);
}

/// In real time, on one thread: the body blocks it in pieces of nearly half a lease.
#[test]
fn a_body_in_blocking_pieces_keeps_its_lease_on_one_thread() {
    let store = Faulty::new(MemoryStore::new());
    // A request that needs the thread more than once, as one to a server does.
    store.always(Step::Renew, Fault::Delay(LEASE / 2));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let answer = runtime.block_on(call(&store, &REJECTING, "7", || async {
        for _ in 0..10 {
            std::thread::sleep(millis(140));
            tokio::task::yield_now().await;
        }
        Ok(1)
    }));
    assert_eq!(answer.unwrap(), 1);
}

/// The store's clock is what counts: when it jumps, the holder hears of it at its next renewal.
#[tokio::test(start_paused = true)]
async fn a_body_is_dropped_as_soon_as_the_store_says_that_its_lease_is_lost() {
    let clock = idem_runtime::testing::clock::ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let begun = Instant::now();
    let first = tokio::spawn({
        let (store, body) = (store.clone(), Runs::default().body(LEASE * 10, 1));
        async move { call(&store, &REJECTING, "7", body).await }
    });
    sleep(millis(10)).await;
    clock.advance(LEASE);
    assert_eq!(quick(&store, &REJECTING, 2).await.unwrap(), 2);
    let lost = error(first.await.unwrap());
    assert_eq!(lost.kind(), ErrorKind::LostOwnership);
    assert!(begun.elapsed() <= LEASE / 2, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_body_may_be_let_run_on_after_its_lease_is_lost() {
    // Nobody took the record over: the outcome counts.
    let (store, runs) = (store(), Runs::default());
    store.always(Step::Renew, Fault::HangBefore);
    let answer = call(&store, &CONTINUING, "7", runs.body(LEASE * 4, 1)).await;
    assert_eq!(answer.unwrap(), 1);
    assert_eq!(quick(&store, &CONTINUING, 2).await.unwrap(), 1);

    // Somebody did.
    let store = self::store();
    store.always(Step::Renew, Fault::HangBefore);
    let slow = tokio::spawn({
        let (store, body) = (store.clone(), runs.body(LEASE * 4, 1));
        async move { call(&store, &CONTINUING, "7", body).await }
    });
    sleep(LEASE * 2).await;
    assert_eq!(quick(&store, &CONTINUING, 2).await.unwrap(), 2);
    let lost = error(slow.await.unwrap());
    assert_eq!(
        (lost.kind(), lost.effect()),
        (ErrorKind::LostOwnership, Effect::Done)
    );
    assert_eq!(lost.unrecorded::<u64>(), Some(1));
    assert_eq!(quick(&store, &CONTINUING, 3).await.unwrap(), 2);
}

/// LK-01. In real time: the body stops the only thread that could renew.
#[test]
fn a_body_that_blocks_past_its_lease_reports_that_it_lost_it() {
    let store = MemoryStore::new();
    let (started, wait) = mpsc::channel();
    let blocked = std::thread::spawn({
        let store = store.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(call(&store, &REJECTING, "7", || async {
                let fence = fence().expect("a leased body has a fence");
                started.send(fence).unwrap();
                std::thread::sleep(LEASE * 3);
                Ok(fence.get())
            }))
        }
    });
    let first = wait.recv().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let second = runtime.block_on(async {
        sleep(LEASE * 3 / 2).await;
        let body = || async { Ok(fence().expect("a fence").get()) };
        call(&store, &REJECTING, "7", body).await.unwrap()
    });
    assert!(second > first.get(), "a resource refuses the lower number");
    let lost = error(blocked.join().unwrap());
    assert_eq!(
        (lost.kind(), lost.effect()),
        (ErrorKind::LostOwnership, Effect::Done)
    );
    let third = runtime.block_on(quick(&store, &REJECTING, 0)).unwrap();
    assert_eq!(third, second, "the successor's outcome stands");
}

#[tokio::test(start_paused = true)]
async fn fences_grow_from_run_to_run() {
    let store = store();
    let last = &AtomicUsize::new(0);
    for _ in 0..5 {
        let failing = || async {
            let now = usize::try_from(fence().unwrap().get()).unwrap();
            assert!(last.swap(now, Ordering::SeqCst) < now);
            Err(Failure::Declined)
        };
        assert!(
            call(&store, &REJECTING, "7", failing)
                .await
                .unwrap_err()
                .kind()
                .is_none()
        );
    }
    assert_eq!(fence(), None);
}

/// IP-02.
#[tokio::test(start_paused = true)]
async fn a_lease_of_no_time_is_refused_before_anything_is_asked() {
    static NONE: Operation = operation("waiting").lease_millis(0);
    let (store, runs) = (store(), Runs::default());
    let answer = call(&store, &NONE, "7", runs.body(LEASE, 1)).await;
    assert_eq!(refused(&answer), ErrorKind::InvalidLease);
    for left in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let prepared = prepare(&REJECTING, "7").unwrap().lease_for(left);
        assert_eq!(
            prepared.unwrap_err().kind(),
            ErrorKind::InvalidLease,
            "{left:?}"
        );
    }
    assert_eq!((runs.count(), store.calls().len()), (0, 0));

    let prepared = prepare(&REJECTING, "7")
        .unwrap()
        .lease_for(millis(1))
        .unwrap();
    let answer = run(&store, prepared, &contract(), runs.body(millis(20), 1)).await;
    assert_eq!(
        answer.unwrap(),
        1,
        "the shortest lease there is, renewed every millisecond"
    );
}

/// The longest lease there is does not overflow a clock.
#[tokio::test(start_paused = true)]
async fn the_longest_lease_is_taken() {
    let (store, runs) = (store(), Runs::default());
    let longest = prepare(&REJECTING, "7")
        .unwrap()
        .lease_for(idem_runtime::retention::MAX_RETENTION)
        .unwrap();
    let answer = run(&store, longest, &contract(), runs.body(LEASE, 1)).await;
    assert_eq!(answer.unwrap(), 1);
}
