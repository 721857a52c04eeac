//! A leased store: the reservation is guarded by time, and renewed while the body runs.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout};

use super::guard::{Guard, Unanswered};
use super::renewal::Renewal;
use super::turns::Turns;
use super::{
    Access, Driver, Replay, Run, Settlement, Step, WithLease, call_path, pending, recording,
};
use crate::error::{Effect, Error, ErrorKind};
use crate::operation::{Call, InProgress};
use crate::protocol::{OnCrash, Owner};
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

/// A call that holds a lease. Dropped before its body has ended, it does what its operation says
/// ([`OnCancel`](crate::operation::OnCancel)).
#[derive(Debug)]
pub struct LeasedRun<S: Store> {
    guard: Guard<S>,
    sent_at: Instant,
}

impl<S: Store> Run for LeasedRun<S> {
    fn driver(&self) -> Driver {
        let renewal = Renewal::new(
            self.guard.store().clone(),
            self.guard.reservation().clone(),
            self.call().lease(),
            self.sent_at,
            self.call().on_lost_lease(),
        );
        Driver::leased(
            self.call().id(),
            self.guard.reservation().fence,
            renewal,
            self.call().on_lost_lease(),
        )
    }

    fn call(&self) -> &Call {
        self.guard.call()
    }

    fn effect_unrecorded(&self) -> Option<Effect> {
        Some(Effect::Done)
    }

    fn body_ended(&mut self, settlement: Option<&Settlement>) {
        match settlement {
            Some(Settlement::Complete(outcome)) => self.guard.records(outcome.clone()),
            Some(Settlement::Release) => self.guard.releases(),
            None => self.guard.holds(),
        }
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
                let known = pending::known(store, &reservation);
                let guard = Guard::new(store.clone(), reservation, call);
                return Ok(match known {
                    Some(outcome) => Step::Replay(finish(guard, outcome).await),
                    None => Step::Run(LeasedRun { guard, sent_at }),
                });
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
    let mut unanswered = Unanswered::new(store, request.id, request.owner);
    let Ok(answer) = timeout(request.lease, store.reserve(request)).await else {
        return Err(no_answer());
    };
    let reserved = answer?;
    if let Reserved::Granted(reservation) = &reserved
        && request.on_crash == OnCrash::Hold
    {
        unanswered.may_be_held(request.lease);
        hold(store, reservation, request.lease).await?;
    }
    unanswered.answered();
    Ok(reserved)
}

/// Lets a reservation outlast its lease: only from here on can its body begin, and its effect be in
/// doubt.
async fn hold<S: Store>(
    store: &S,
    reservation: &Reservation,
    lease: Duration,
) -> Result<(), Error> {
    match timeout(lease, store.renew(reservation, lease)).await {
        Ok(Ok(Held::Yes)) => Ok(()),
        Ok(Ok(Held::No)) => Err(Error::new(ErrorKind::StoreUnavailable)
            .detail("the reservation was lost before the body began")),
        // The body has not run.
        Ok(Err(error)) => Err(error.effect_is(Effect::None)),
        Err(_) => Err(no_answer()),
    }
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

/// The body has ended in an earlier call, whose outcome this process knows and could not record yet.
async fn finish<S: Store>(mut guard: Guard<S>, outcome: Bytes) -> Replay {
    guard.records(outcome.clone());
    if let Ok(()) = recording::record(&guard, &outcome).await {
        guard.holds();
    }
    Replay {
        call: guard.call().clone(),
        outcome,
        recorded_at: None,
    }
}

async fn settle<S: Store>(run: LeasedRun<S>, settlement: Settlement) -> Result<(), Error> {
    let LeasedRun { mut guard, .. } = run;
    match settlement {
        Settlement::Complete(outcome) => {
            let recorded = recording::record(&guard, &outcome).await;
            let goes_on =
                matches!(&recorded, Err(error) if error.kind() == ErrorKind::EffectDoneNotRecorded);
            if !goes_on {
                guard.holds();
            }
            recorded
        }
        Settlement::Release => {
            guard.releases();
            let release = guard.store().release(guard.reservation());
            if let Ok(Ok(_)) = timeout(recording::budget(guard.call()) / 3, release).await {
                guard.holds();
            }
            // Otherwise the guard tries once more; failing that, the lease ends by itself.
            Ok(())
        }
    }
}
