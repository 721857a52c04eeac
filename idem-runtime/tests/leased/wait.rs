//! Duplicates while the first call runs.

use idem_runtime::store::{Held, Request, Reservation, Reserved, Stored};
use idem_runtime::testing::fault::{Fault, Step};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;

fn first(
    store: &TestStore,
    operation: &'static Operation,
    time: Duration,
    answer: Result<u64, Failure>,
) -> JoinHandle<Result<u64, Failure>> {
    let store = store.clone();
    tokio::spawn(async move {
        let body = || async {
            sleep(time).await;
            answer
        };
        call(&store, operation, "7", body).await
    })
}

/// IP-14 (a).
#[tokio::test(start_paused = true)]
async fn a_waiting_call_replays_as_soon_as_the_first_is_done() {
    let store = store();
    let first = first(&store, &WAITING, millis(1_000), Ok(1));
    sleep(millis(10)).await;
    let begun = Instant::now();
    let (answer, seen) = idem_runtime::observe(quick(&store, &WAITING, 2)).await;
    assert_eq!((answer.unwrap(), seen.replayed()), (1, true));
    assert!(
        begun.elapsed() < millis(1_010),
        "woken, not found by a poll: {:?}",
        begun.elapsed()
    );
    assert_eq!(first.await.unwrap().unwrap(), 1);
}

/// IP-14 (b).
#[tokio::test(start_paused = true)]
async fn a_waiting_call_runs_when_the_first_failed() {
    let store = store();
    let first = first(&store, &WAITING, millis(1_000), Err(Failure::Declined));
    sleep(millis(10)).await;
    let begun = Instant::now();
    assert_eq!(quick(&store, &WAITING, 2).await.unwrap(), 2);
    assert!(begun.elapsed() < millis(1_010));
    assert!(first.await.unwrap().is_err());
}

/// IP-14 (c).
#[tokio::test(start_paused = true)]
async fn a_waiting_call_is_refused_when_its_budget_is_used_up() {
    let store = store();
    let first = first(&store, &WAITING, millis(5_000), Ok(1));
    sleep(millis(10)).await;
    let begun = Instant::now();
    assert_eq!(
        refused(&quick(&store, &WAITING, 2).await),
        ErrorKind::InProgress
    );
    let waited = begun.elapsed();
    assert!(
        waited >= millis(2_000) && waited < millis(2_050),
        "{waited:?}"
    );
    assert_eq!(first.await.unwrap().unwrap(), 1);
}

/// IP-14 (d).
#[tokio::test(start_paused = true)]
async fn a_waiting_call_runs_after_the_first_was_cancelled() {
    let store = store();
    let first = first(&store, &WAITING, millis(5_000), Ok(1));
    let waiting = tokio::spawn({
        let store = store.clone();
        async move {
            sleep(millis(10)).await;
            let begun = Instant::now();
            (quick(&store, &WAITING, 2).await, begun.elapsed())
        }
    });
    sleep(millis(1_000)).await;
    first.abort();
    let (answer, waited) = waiting.await.unwrap();
    assert_eq!(answer.unwrap(), 2);
    assert!(waited < millis(1_000) + LEASE + millis(10), "{waited:?}");
}

/// IP-14 (e).
#[tokio::test(start_paused = true)]
async fn a_waiting_call_that_is_dropped_leaves_nothing_behind() {
    let store = store();
    let first = first(&store, &WAITING, millis(1_000), Ok(1));
    sleep(millis(10)).await;
    for _ in 0..50 {
        let waiting = tokio::time::timeout(millis(10), quick(&store, &WAITING, 2)).await;
        assert!(waiting.is_err());
    }
    let asked = store.count(Step::Reserve);
    sleep(millis(100)).await;
    assert_eq!(store.count(Step::Reserve), asked, "nobody asks any more");
    assert_eq!(first.await.unwrap().unwrap(), 1);
    assert_eq!(store.inner().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_told_when_to_come_back() {
    let store = store();
    let first = first(&store, &REJECTING, millis(1_000), Ok(1));
    sleep(millis(50)).await;
    let begun = Instant::now();
    let refused = error(quick(&store, &REJECTING, 2).await);
    assert_eq!(
        (refused.kind(), begun.elapsed()),
        (ErrorKind::InProgress, Duration::ZERO)
    );
    let idem_runtime::Retry::Later(Some(after)) = refused.retry() else {
        panic!("{refused:?}");
    };
    assert!(after <= LEASE && after >= LEASE / 2, "{after:?}");
    first.await.unwrap().unwrap();
}

/// LK-11: the stale release of an owner that overran its lease wakes a waiting call, and lets nobody
/// in.
#[tokio::test(start_paused = true)]
async fn a_wake_up_is_only_a_hint() {
    let store = store();
    store.always(Step::Renew, Fault::HangBefore);
    let late = first(&store, &CONTINUING, LEASE * 3, Err(Failure::Declined));
    sleep(LEASE + millis(10)).await;
    store.heal();
    let holder = first(&store, &REJECTING, LEASE * 6, Ok(2));
    sleep(millis(10)).await;
    let waiting = first(&store, &WAITING, millis(1), Ok(3));
    assert!(late.await.unwrap().is_err(), "its release comes to nothing");
    assert!(!holder.is_finished() && !waiting.is_finished());
    assert_eq!(holder.await.unwrap().unwrap(), 2);
    assert_eq!(waiting.await.unwrap().unwrap(), 2);
}

/// A store whose hints are all false.
#[derive(Clone)]
struct Nervous(TestStore);

impl Store for Nervous {
    async fn reserve(&self, request: &Request<'_>) -> Result<Reserved, Error> {
        self.0.reserve(request).await
    }

    async fn complete(
        &self,
        held: &Reservation,
        outcome: bytes::Bytes,
        retention: idem_runtime::retention::Retention,
    ) -> Result<Held, Error> {
        self.0.complete(held, outcome, retention).await
    }

    async fn release(&self, held: &Reservation) -> Result<Held, Error> {
        self.0.release(held).await
    }

    async fn renew(&self, held: &Reservation, lease: Duration) -> Result<Held, Error> {
        self.0.renew(held, lease).await
    }

    async fn lookup(&self, id: idem_runtime::key::RecordId) -> Result<Option<Stored>, Error> {
        self.0.lookup(id).await
    }

    async fn forget(&self, id: idem_runtime::key::RecordId) -> Result<bool, Error> {
        self.0.forget(id).await
    }

    async fn purge(&self, limit: usize) -> Result<usize, Error> {
        self.0.purge(limit).await
    }

    async fn changed(&self, _: idem_runtime::key::RecordId) {}
}

#[tokio::test(start_paused = true)]
async fn false_hints_neither_let_in_nor_hammer_the_store() {
    let store = Nervous(store());
    let first = first(&store.0, &WAITING, millis(1_500), Ok(1));
    sleep(millis(10)).await;
    assert_eq!(quick(&store, &WAITING, 2).await.unwrap(), 1);
    assert!(
        store.0.count(Step::Reserve) < 60,
        "{}",
        store.0.count(Step::Reserve)
    );
    first.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn changes_of_other_records_wake_nobody() {
    let store = store();
    let first = first(&store, &WAITING, millis(1_500), Ok(1));
    sleep(millis(10)).await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { quick(&store, &WAITING, 2).await }
    });
    sleep(millis(10)).await;
    // No time passes in between: whoever asks now was woken.
    let others = 500;
    let asked = store.count(Step::Reserve);
    for n in 0..others {
        let key = format!("other-{n}");
        let answer = call(&store, &WAITING, &key, || async { Ok(n) }).await;
        assert_eq!(answer.unwrap(), n);
        tokio::task::yield_now().await;
    }
    let asked = store.count(Step::Reserve) - asked;
    assert_eq!(asked as u64, others, "the waiting call asked as well");
    assert_eq!(waiting.await.unwrap().unwrap(), 1);
    first.await.unwrap().unwrap();
}

/// IP-20: the same operation and key on one call path.
#[tokio::test(start_paused = true)]
async fn a_call_inside_itself_is_refused_at_once() {
    let store = store();
    let begun = Instant::now();
    let outer = call(&store, &WAITING, "7", || async {
        let inner = quick(&store, &WAITING, 2).await;
        assert_eq!(refused(&inner), ErrorKind::Reentrant);
        inner
    });
    assert_eq!(refused(&outer.await), ErrorKind::Reentrant);
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(quick(&store, &WAITING, 3).await.unwrap(), 3, "given back");
}

static PAYING: Operation = operation("pay").wait_millis(2_000);
static REFUNDING: Operation = operation("refund").wait_millis(2_000);

/// IP-20: through another operation.
#[tokio::test(start_paused = true)]
async fn a_call_inside_itself_is_seen_through_others() {
    fn pay(
        store: TestStore,
        depth: u64,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<u64, Failure>> + Send>> {
        Box::pin(async move {
            let operation = if depth.is_multiple_of(2) {
                &PAYING
            } else {
                &REFUNDING
            };
            call(&store, operation, "7", || pay(store.clone(), depth + 1)).await
        })
    }
    let begun = Instant::now();
    assert_eq!(refused(&pay(store(), 0).await), ErrorKind::Reentrant);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

/// IP-12, IP-20: different operations under one key text are different records.
#[tokio::test(start_paused = true)]
async fn different_operations_with_one_key_run_inside_each_other() {
    let store = store();
    let outer = call(&store, &PAYING, "7", || async {
        Ok(quick(&store, &REFUNDING, 2).await? + 10)
    });
    assert_eq!(outer.await.unwrap(), 12);
    assert_eq!(quick(&store, &PAYING, 0).await.unwrap(), 12);
    assert_eq!(quick(&store, &REFUNDING, 0).await.unwrap(), 2);
}
