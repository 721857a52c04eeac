//! A leased store: the reservation is guarded by time, and renewed while the body runs.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout};

use super::backoff::Backoff;
use super::guard::{Guard, Unanswered};
use super::renewal::Renewal;
use super::turns::Turns;
use super::{Access, Driver, Replay, Run, Settlement, Step, WithLease, call_path};
use crate::error::{Effect, Error, ErrorKind};
use crate::operation::{Call, InProgress, OnCancel};
use crate::protocol::{Owner, State};
use crate::store::{Held, Request, Reservation, Reserved, Store};

/// A leased store that was named by a shared reference.
#[derive(Debug)]
struct Shared<'a, S>(&'a S);

/// Lends a store out. Of what is lent nothing is known but that it gives access, so that a type that
/// is no store is refused here and not once more by everything after.
#[must_use]
pub fn share<S: Store>(
    store: &S,
) -> impl Access<Run = impl Run + Send + Sync + use<S>, Guard = WithLease> + Send + use<'_, S> {
    Shared(store)
}

/// A call that holds a lease. Dropped before it is settled, it does what its operation says
/// ([`OnCancel`]).
#[derive(Debug)]
pub struct LeasedRun<S: Store> {
    guard: Guard<S>,
    call: Call,
    sent_at: Instant,
}

impl<S: Store> Run for LeasedRun<S> {
    fn driver(&self) -> Driver {
        let renewal = Renewal::new(
            self.guard.store().clone(),
            self.guard.reservation().clone(),
            self.call.lease(),
            self.sent_at,
        );
        Driver::leased(
            self.call.id(),
            self.guard.reservation().fence,
            renewal,
            self.call.on_lost_lease(),
        )
    }

    fn call(&self) -> &Call {
        &self.call
    }

    fn body_ended(&mut self) {
        // From here on the effect may be done: nothing gives the reservation back by default.
        self.guard.on_drop(OnCancel::Hold);
    }
}

impl<S: Store> Access for Shared<'_, S> {
    type Run = LeasedRun<S>;
    type Guard = WithLease;

    fn guard(&mut self) -> &mut WithLease {
        WithLease::nothing()
    }

    async fn reserve(&mut self, call: Call) -> Result<Step<LeasedRun<S>>, Error> {
        reserve(self.0, call).await
    }

    async fn settle(&mut self, run: LeasedRun<S>, settlement: Settlement) -> Result<(), Error> {
        settle(run, settlement).await
    }
}

impl<S: Store> Access for S {
    type Run = LeasedRun<S>;
    type Guard = WithLease;

    fn guard(&mut self) -> &mut WithLease {
        WithLease::nothing()
    }

    async fn reserve(&mut self, call: Call) -> Result<Step<LeasedRun<S>>, Error> {
        reserve(&*self, call).await
    }

    async fn settle(&mut self, run: LeasedRun<S>, settlement: Settlement) -> Result<(), Error> {
        settle(run, settlement).await
    }
}

async fn reserve<S: Store>(store: &S, mut call: Call) -> Result<Step<LeasedRun<S>>, Error> {
    call.check_lease()?;
    call.enter_namespace(store.namespace());
    if call_path::holds(call.id()) {
        return Err(call.error(ErrorKind::Reentrant));
    }
    let owner = Owner::fresh();
    let budget = match call.in_progress() {
        InProgress::Wait(budget) => Some(budget),
        InProgress::Reject => None,
    };
    let mut turns = Turns::new(store, call.id(), budget);
    loop {
        let sent_at = Instant::now();
        let asked = ask(store, &Request::of(&call, owner)).await;
        let free_in = match asked.map_err(|error| call.name(error))? {
            Reserved::Granted(reservation) => {
                return Ok(Step::Run(LeasedRun {
                    guard: Guard::new(store.clone(), reservation, call.on_cancel()),
                    call,
                    sent_at,
                }));
            }
            Reserved::Completed {
                outcome,
                recorded_at,
                ..
            } => {
                return Ok(Step::Replay(Replay {
                    call,
                    outcome,
                    recorded_at: Some(recorded_at),
                }));
            }
            Reserved::InProgress { free_in } => free_in,
            refused => return Err(refusal(&call, &refused)),
        };
        if !turns.pause(free_in).await {
            let after = free_in.unwrap_or(Duration::from_secs(1));
            return Err(call.error(ErrorKind::InProgress).after(after));
        }
    }
}

/// Asks once. An answer that takes longer than the lease would grant nothing.
pub(crate) async fn ask<S: Store>(store: &S, request: &Request<'_>) -> Result<Reserved, Error> {
    let unanswered = Unanswered::new(store, request.id, request.owner);
    let Ok(answer) = timeout(request.lease, store.reserve(request)).await else {
        return Err(no_answer());
    };
    let reserved = answer?;
    unanswered.answered();
    Ok(reserved)
}

fn refusal(call: &Call, reserved: &Reserved) -> Error {
    match reserved {
        Reserved::Mismatch => call.error(ErrorKind::FingerprintMismatch),
        Reserved::Abandoned => call.error(ErrorKind::Abandoned),
        Reserved::OutcomeGone => call.error(ErrorKind::OutcomeGone),
        Reserved::Granted(_) | Reserved::Completed { .. } | Reserved::InProgress { .. } => {
            call.error(ErrorKind::StoreUnavailable)
        }
    }
}

pub(crate) fn no_answer() -> Error {
    Error::new(ErrorKind::StoreUnavailable).detail("the store did not answer in time")
}

/// How long the end of a call tries to reach the store.
fn settling_budget(call: &Call) -> Duration {
    call.lease().min(Duration::from_secs(10))
}

async fn settle<S: Store>(mut run: LeasedRun<S>, settlement: Settlement) -> Result<(), Error> {
    match settlement {
        Settlement::Complete(outcome) => complete(run, outcome).await,
        Settlement::Release => {
            run.guard.on_drop(OnCancel::Release);
            let LeasedRun { guard, call, .. } = &mut run;
            let release = guard.store().release(guard.reservation());
            if let Ok(Ok(_)) = timeout(settling_budget(call) / 3, release).await {
                guard.on_drop(OnCancel::Hold);
            }
            // Otherwise the guard tries once more; failing that, the lease ends by itself.
            Ok(())
        }
    }
}

/// The body has succeeded: tries within reason, and never lets the reservation go without saying so.
async fn complete<S: Store>(run: LeasedRun<S>, outcome: Bytes) -> Result<(), Error> {
    let LeasedRun { guard, call, .. } = run;
    let (store, reservation) = (guard.store(), guard.reservation());
    let mut backoff = Backoff::new(
        Some(settling_budget(&call)),
        Duration::from_millis(10),
        Duration::from_secs(1),
    );
    let Err(mut error) = record(store, reservation, &call, &outcome).await? else {
        return Ok(());
    };
    let again = async {
        while let Some(pause) = backoff.next() {
            tokio::time::sleep(pause).await;
            match record(store, reservation, &call, &outcome).await? {
                Ok(()) => return Ok(()),
                Err(another) => error = another,
            }
        }
        Err(call
            .error(ErrorKind::EffectDoneNotRecorded)
            .caused_by(error)
            .carrying(outcome.clone()))
    };
    // The effect is done: nobody else is to begin while this is being written down.
    let renewal = Renewal::at_once(store.clone(), reservation.clone(), call.lease());
    let hold_on = async {
        renewal.until_lost().await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        recorded = again => recorded,
        () = hold_on => Ok(()),
    }
}

/// One try. The inner error is worth another one.
async fn record<S: Store>(
    store: &S,
    reservation: &Reservation,
    call: &Call,
    outcome: &Bytes,
) -> Result<Result<(), Error>, Error> {
    let patience = settling_budget(call) / 3;
    let completion = store.complete(reservation, outcome.clone(), call.retention());
    match timeout(patience, completion).await {
        Ok(Ok(Held::Yes)) => return Ok(Ok(())),
        Ok(Ok(Held::No)) => {}
        Ok(Err(error)) => return Ok(Err(error)),
        Err(_) => return Ok(Err(no_answer())),
    }
    // A completion whose answer was lost and that is repeated finds the record completed by itself.
    let recorded = match timeout(patience, store.lookup(reservation.id)).await {
        Ok(Ok(stored)) => stored.is_some_and(|stored| {
            stored.record.fence == reservation.fence
                && matches!(&stored.record.state, State::Completed { outcome: kept, .. } if kept == outcome)
        }),
        Ok(Err(error)) => return Ok(Err(error)),
        Err(_) => return Ok(Err(no_answer())),
    };
    if recorded {
        return Ok(Ok(()));
    }
    Err(call
        .error(ErrorKind::LostOwnership)
        .effect_is(Effect::Done)
        .carrying(outcome.clone()))
}
