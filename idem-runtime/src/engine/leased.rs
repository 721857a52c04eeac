//! A leased store: the reservation is guarded by time, and renewed while the body runs.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::backoff::Backoff;
use super::{Access, Driver, Replay, Run, Settlement, Step, call_path};
use crate::error::{Effect, Error, ErrorKind};
use crate::operation::{Call, InProgress};
use crate::protocol::Owner;
use crate::store::{Held, Request, Reservation, Reserved, Store};

/// A leased store that was named by a shared reference.
#[derive(Debug)]
pub struct Shared<'a, S>(&'a S);

/// Lends a store out.
#[must_use]
pub fn share<S: Store>(store: &S) -> Shared<'_, S> {
    Shared(store)
}

/// A call that holds a lease.
#[derive(Debug)]
pub struct LeasedRun<S> {
    store: S,
    call: Call,
    reservation: Reservation,
    sent_at: Instant,
}

impl<S: Store> Run for LeasedRun<S> {
    fn driver(&self) -> Driver {
        let renewal = Renewal::new(
            self.store.clone(),
            self.reservation.clone(),
            self.call.lease(),
            self.sent_at,
        );
        Driver::leased(self.call.id(), self.reservation.fence, renewal)
    }

    fn call(&self) -> &Call {
        &self.call
    }
}

impl<S: Store> Access for Shared<'_, S> {
    type Run = LeasedRun<S>;

    async fn reserve(&mut self, call: Call) -> Result<Step<LeasedRun<S>>, Error> {
        reserve(self.0, call).await
    }

    async fn settle(&mut self, run: LeasedRun<S>, settlement: Settlement) -> Result<(), Error> {
        settle(run, settlement).await
    }
}

impl<S: Store> Access for S {
    type Run = LeasedRun<S>;

    async fn reserve(&mut self, call: Call) -> Result<Step<LeasedRun<S>>, Error> {
        reserve(&*self, call).await
    }

    async fn settle(&mut self, run: LeasedRun<S>, settlement: Settlement) -> Result<(), Error> {
        settle(run, settlement).await
    }
}

async fn reserve<S: Store>(store: &S, mut call: Call) -> Result<Step<LeasedRun<S>>, Error> {
    call.enter_namespace(store.namespace());
    if call_path::holds(call.id()) {
        return Err(call.error(ErrorKind::Reentrant));
    }
    let owner = Owner::fresh();
    let mut polling = polling(&call);
    loop {
        // Listening begins before asking, so that a change in between is not missed.
        let changed = store.changed(call.id());
        let sent_at = Instant::now();
        let reserved = store.reserve(&Request::of(&call, owner)).await;
        match reserved.map_err(|error| call.name(error))? {
            Reserved::Granted(reservation) => {
                let store = store.clone();
                return Ok(Step::Run(LeasedRun {
                    store,
                    call,
                    reservation,
                    sent_at,
                }));
            }
            Reserved::Completed {
                outcome,
                recorded_at,
            } => {
                return Ok(Step::Replay(Replay {
                    call,
                    outcome,
                    recorded_at: Some(recorded_at),
                }));
            }
            Reserved::Mismatch => return Err(call.error(ErrorKind::FingerprintMismatch)),
            Reserved::OutcomeGone => {
                return Err(call
                    .error(ErrorKind::OutcomeUndecodable)
                    .detail("the outcome is no longer kept"));
            }
            Reserved::InProgress { free_in } => match polling.next() {
                Some(pause) => {
                    let pause =
                        free_in.map_or(pause, |free_in| pause.min(free_in.max(SHORTEST_PAUSE)));
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep(pause) => {}
                    }
                }
                None => {
                    let after = free_in.unwrap_or(Duration::from_secs(1));
                    return Err(call.error(ErrorKind::InProgress).after(after));
                }
            },
        }
    }
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

fn polling(call: &Call) -> Backoff {
    let budget = match call.in_progress() {
        InProgress::Wait(budget) => Some(budget),
        InProgress::Reject => None,
    };
    Backoff::new(budget, Duration::from_millis(5), Duration::from_millis(250))
}

async fn settle<S: Store>(run: LeasedRun<S>, settlement: Settlement) -> Result<(), Error> {
    match settlement {
        Settlement::Complete(outcome) => complete(run, outcome).await,
        Settlement::Release => {
            // A release that does not arrive leaves the lease to end by itself.
            let _ = run.store.release(&run.reservation).await;
            Ok(())
        }
    }
}

/// The body has succeeded: tries within reason, and never lets the reservation go without saying so.
async fn complete<S: Store>(run: LeasedRun<S>, outcome: Bytes) -> Result<(), Error> {
    let LeasedRun {
        store,
        call,
        reservation,
        ..
    } = run;
    let budget = call.lease().min(Duration::from_secs(10));
    let mut backoff = Backoff::new(
        Some(budget),
        Duration::from_millis(10),
        Duration::from_secs(1),
    );
    loop {
        match store
            .complete(&reservation, outcome.clone(), call.retention())
            .await
        {
            Ok(Held::Yes) => return Ok(()),
            Ok(Held::No) => {
                return match recorded_by_us(&store, &reservation, &outcome).await {
                    true => Ok(()),
                    false => Err(call
                        .error(ErrorKind::LostOwnership)
                        .effect_is(Effect::Done)
                        .carrying(outcome)),
                };
            }
            Err(error) => match backoff.next() {
                Some(pause) => tokio::time::sleep(pause).await,
                None => {
                    return Err(call
                        .error(ErrorKind::EffectDoneNotRecorded)
                        .caused_by(error)
                        .carrying(outcome));
                }
            },
        }
    }
}

/// A completion whose answer was lost and that is repeated finds the record completed by itself.
async fn recorded_by_us<S: Store>(store: &S, reservation: &Reservation, outcome: &Bytes) -> bool {
    match store.lookup(reservation.id).await {
        Ok(Some(stored)) => {
            stored.record.fence == reservation.fence
                && matches!(&stored.record.state, crate::protocol::State::Completed { outcome: kept, .. } if kept == outcome)
        }
        _ => false,
    }
}

/// Keeps a lease alive, one third of its length before the next renewal.
pub(crate) struct Renewal {
    lost: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Renewal {
    fn new<S: Store>(
        store: S,
        reservation: Reservation,
        lease: Duration,
        sent_at: Instant,
    ) -> Self {
        Self {
            lost: Box::pin(renew_until_lost(store, reservation, lease, sent_at)),
        }
    }

    pub(crate) async fn until_lost(self) {
        self.lost.await;
    }
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renewal")
    }
}

/// Ends when the lease is lost. Its end is counted here from the moment the last request that
/// succeeded was *sent*: the store started counting no earlier.
async fn renew_until_lost<S: Store>(
    store: S,
    reservation: Reservation,
    lease: Duration,
    mut sent_at: Instant,
) {
    let interval = lease / 3;
    let mut next = sent_at + interval;
    loop {
        tokio::time::sleep_until(next).await;
        let now = Instant::now();
        // Past our own count the store may have given the record away; it still knows.
        match tokio::time::timeout(lease, store.renew(&reservation, lease)).await {
            Ok(Ok(Held::Yes)) => {
                sent_at = now;
                next = sent_at + interval;
            }
            Ok(Ok(Held::No)) => return,
            Ok(Err(_)) | Err(_) if sent_at.elapsed() >= lease => return,
            Ok(Err(_)) | Err(_) => next = Instant::now() + interval / 4,
        }
    }
}
