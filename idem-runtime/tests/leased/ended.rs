//! A body that has ended is never run again, whatever becomes of its caller and of the record of its
//! outcome.

use idem_runtime::testing::fault::{Fault, Step};
use idem_runtime::{Effect, Retry};

use super::*;

/// The store takes no outcome and the lease is not renewed either: long after it has lapsed, a repeat in
/// the same process is answered all the same.
#[tokio::test(start_paused = true)]
async fn a_known_success_is_not_run_again_while_the_store_takes_nothing() {
    let (store, runs) = (store(), Runs::default());
    store.always(Step::Complete, Fault::Before);
    store.always(Step::Renew, Fault::Before);
    let first = tokio::spawn({
        let (store, body) = (store.clone(), runs.body(millis(10), 41));
        async move { call(&store, &REJECTING, "7", body).await }
    });
    // The lease has ended, and the first caller still waits for its outcome to be recorded.
    sleep(LEASE + millis(2)).await;
    assert!(!first.is_finished());
    let answer = call(&store, &REJECTING, "7", runs.body(millis(10), 42)).await;
    assert_eq!(answer.unwrap(), 41);
    let lost = error(first.await.unwrap());
    assert_eq!((lost.effect(), lost.retry()), (Effect::Done, Retry::Never));
    for _ in 0..3 {
        sleep(LEASE * 10).await;
        let answer = call(&store, &REJECTING, "7", runs.body(millis(10), 42)).await;
        assert_eq!(answer.unwrap(), 41);
    }
    store.heal();
    sleep(Duration::from_secs(10)).await;
    let id = prepare(&REJECTING, "7").unwrap().id();
    let stored = store.lookup(id).await.unwrap().unwrap();
    assert!(matches!(
        stored.record.state,
        idem_runtime::protocol::State::Completed { .. }
    ));
    assert_eq!(quick(&store, &REJECTING, 43).await.unwrap(), 41);
    assert_eq!(runs.count(), 1);
}

/// Another payload does not get the answer that waits to be recorded.
#[tokio::test(start_paused = true)]
async fn what_waits_to_be_recorded_answers_its_own_payload_only() {
    fn with_payload(cents: u64) -> Call {
        fn here() {}
        let mut key = KeyBuilder::new(":");
        key_part(&mut key, "7");
        let mut payload = FingerprintBuilder::new();
        payload.part(&cents);
        Call::prepare(&REJECTING, &here, &[], key, payload).unwrap()
    }
    let (store, runs) = (store(), Runs::default());
    store.always(Step::Complete, Fault::Before);
    store.always(Step::Renew, Fault::Before);
    let first = run(
        &store,
        with_payload(10),
        &contract(),
        runs.body(millis(1), 1),
    )
    .await;
    assert_eq!(refused(&first), ErrorKind::EffectDoneNotRecorded);
    // The store has lost everything.
    sleep(LEASE * 2).await;
    let _ = store.forget(with_payload(10).id()).await.unwrap();
    let other = run(
        &store,
        with_payload(11),
        &contract(),
        runs.body(millis(1), 2),
    )
    .await;
    assert_ne!(other.ok(), Some(1));
}

/// Dropped at every poll from the body's end on: recorded in the background.
#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_while_the_outcome_is_being_recorded_loses_nothing() {
    for fault in [
        None,
        Some(Fault::Before),
        Some(Fault::After),
        Some(Fault::HangBefore),
        Some(Fault::Delay(millis(50))),
    ] {
        for after in 1..40 {
            let (store, runs) = (store(), Runs::default());
            if let Some(fault) = fault {
                store.at(Step::Complete, 1, fault);
                store.at(Step::Complete, 2, fault);
            }
            // The body is at its end after 10 ms; the caller goes a little later.
            let gone = tokio::time::timeout(
                millis(10) + Duration::from_micros(250) * after,
                call(&store, &REJECTING, "7", runs.body(millis(10), 41)),
            );
            let _ = gone.await;
            sleep(LEASE * 8).await;
            let again = call(&store, &REJECTING, "7", runs.body(millis(10), 42)).await;
            assert_eq!(again.unwrap(), 41, "{fault:?} after {after}");
            assert_eq!(runs.count(), 1, "{fault:?} after {after}");
        }
    }
}

/// The store was restarted without its data while the outcome waited to be recorded.
#[tokio::test(start_paused = true)]
async fn a_reservation_that_the_store_has_lost_is_made_anew() {
    let (store, runs) = (store(), Runs::default());
    for nth in 1..=3 {
        store.at(Step::Complete, nth, Fault::HangBefore);
    }
    let task = tokio::spawn({
        let (store, body) = (store.clone(), runs.body(millis(10), 41));
        async move { call(&store, &REJECTING, "7", body).await }
    });
    sleep(millis(20)).await;
    task.abort();
    let id = prepare(&REJECTING, "7").unwrap().id();
    let stored = store.lookup(id).await.unwrap().unwrap();
    let idem_runtime::protocol::State::Reserved { owner, .. } = stored.record.state else {
        panic!("not reserved");
    };
    let mut request = idem_runtime::store::Request::new(id, stored.record.fingerprint, LEASE);
    request.owner = owner;
    let idem_runtime::store::Reserved::Granted(reservation) =
        store.reserve(&request).await.unwrap()
    else {
        panic!("not ours");
    };
    let _ = store.release(&reservation).await.unwrap();
    sleep(LEASE * 10).await;
    assert_eq!(quick(&store, &REJECTING, 42).await.unwrap(), 41);
    assert_eq!(runs.count(), 1);
}

/// A store that renews and does not take this outcome: a marker keeps the key closed.
#[tokio::test(start_paused = true)]
async fn an_outcome_that_the_store_does_not_take_is_replaced_by_a_marker() {
    for kind in [
        ErrorKind::StoreUnavailable,
        ErrorKind::StoreExhausted,
        ErrorKind::StoreRefused,
    ] {
        let store = picky::Picky::new(kind);
        let runs = Runs::default();
        let first = error(call(&store, &SLOW, "7", runs.body(millis(10), u64::MAX)).await);
        assert_eq!(first.kind(), ErrorKind::OutcomeNotRecordable, "{first}");
        assert_eq!(
            (first.effect(), first.retry()),
            (Effect::Done, Retry::Never)
        );
        assert_eq!(first.unrecorded::<u64>(), Some(u64::MAX));
        for _ in 0..3 {
            sleep(Duration::from_secs(7)).await;
            let again = error(call(&store, &SLOW, "7", runs.body(millis(10), 1)).await);
            assert_eq!(again.kind(), ErrorKind::OutcomeGone);
            assert_eq!(again.effect(), Effect::Done);
            assert!(again.to_string().contains("did not take it"), "{again}");
        }
        assert_eq!(runs.count(), 1);
    }
}

static SLOW: Operation = operation("slow").reject().lease_millis(3_000);

mod picky {
    //! A store that takes no long outcome.
    use idem_runtime::bytes::Bytes;
    use idem_runtime::key::RecordId;
    use idem_runtime::outcome::{Recorded, recorded};
    use idem_runtime::retention::Retention;
    use idem_runtime::store::{Held, Request, Reservation, Reserved, Store, Stored};

    use super::*;

    #[derive(Clone)]
    pub(super) struct Picky(TestStore, ErrorKind);

    impl Picky {
        pub(super) fn new(kind: ErrorKind) -> Self {
            Self(store(), kind)
        }
    }

    impl Store for Picky {
        async fn reserve(&self, request: &Request<'_>) -> Result<Reserved, Error> {
            self.0.reserve(request).await
        }

        async fn complete(
            &self,
            reservation: &Reservation,
            outcome: Bytes,
            retention: Retention,
        ) -> Result<Held, Error> {
            if matches!(recorded(&outcome), Ok(Recorded::Ok(_))) {
                return Err(Error::new(self.1));
            }
            self.0.complete(reservation, outcome, retention).await
        }

        async fn release(&self, reservation: &Reservation) -> Result<Held, Error> {
            self.0.release(reservation).await
        }

        async fn renew(&self, reservation: &Reservation, lease: Duration) -> Result<Held, Error> {
            self.0.renew(reservation, lease).await
        }

        async fn lookup(&self, id: RecordId) -> Result<Option<Stored>, Error> {
            self.0.lookup(id).await
        }

        async fn forget(&self, id: RecordId) -> Result<bool, Error> {
            self.0.forget(id).await
        }

        async fn purge(&self, limit: usize) -> Result<usize, Error> {
            self.0.purge(limit).await
        }
    }
}
