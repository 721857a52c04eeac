//! Records the outcome of a body that has ended.
//!
//! From the body's end the recording belongs to the runtime and not to the caller's future: when that is
//! dropped, or its patience ends, the recording goes on in the background, until the outcome is recorded,
//! the record is seen to be taken over, or the runtime ends.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::backoff::Backoff;
use super::guard::Guard;
use super::leased::{ask, no_answer};
use super::pending::Pending;
use crate::error::{Effect, Error, ErrorKind};
use crate::operation::Call;
use crate::outcome;
use crate::protocol::{Owner, State};
use crate::store::{Held, Request, Reservation, Reserved, Store};

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause in the background, where nobody waits.
const LONGEST_PAUSE_BEHIND: Duration = Duration::from_secs(5);

/// How long the end of a call tries to reach the store before its caller is told.
pub(super) fn budget(call: &Call) -> Duration {
    call.lease().min(Duration::from_secs(10))
}

/// How a recording ended.
enum Recorded {
    /// The outcome is recorded.
    Yes,
    /// The store does not take the outcome: a marker is recorded in its place.
    Marked(Error),
    /// Another call has the record.
    TakenOver,
}

/// Records the outcome while the caller waits.
///
/// # Errors
/// It is not recorded; where `EffectDoneNotRecorded` says so, the caller of this goes on in the
/// background.
pub(super) async fn record<S: Store>(guard: &Guard<S>, outcome: &Bytes) -> Result<(), Error> {
    let call = guard.call();
    let backoff = Backoff::new(
        Some(budget(call)),
        Duration::from_millis(10),
        LONGEST_PAUSE.min(call.lease() / 4),
    );
    let mut recording = Recording {
        store: guard.store(),
        call,
        reservation: guard.reservation().clone(),
        outcome: outcome.clone(),
        refused: 0,
    };
    let recorded = recording.until_recorded(backoff, || guard.pend(outcome));
    match recorded.await {
        Ok(Recorded::Yes) => Ok(()),
        Ok(Recorded::TakenOver) => Err(call
            .error(ErrorKind::LostOwnership)
            .effect_is(Effect::Done)
            .carrying(outcome.clone())),
        Ok(Recorded::Marked(cause)) => Err(call
            .error(ErrorKind::OutcomeNotRecordable)
            .detail("the store does not take it")
            .effect_is(Effect::Done)
            .caused_by(cause)
            .carrying(outcome.clone())),
        Err(cause) => Err(call
            .error(ErrorKind::EffectDoneNotRecorded)
            .detail("it goes on being recorded in the background while this process lives")
            .caused_by(cause)
            .carrying(outcome.clone())),
    }
}

/// Goes on recording without anybody waiting.
pub(super) async fn go_on<S: Store>(
    store: S,
    reservation: Reservation,
    call: Call,
    outcome: Bytes,
    pending: Option<Pending>,
) {
    let (outcome, _pending) = match pending {
        Some(pending) => (outcome, Some(pending)),
        None => {
            let reason = "the store could not be reached, and too many outcomes waited for it";
            let marker = outcome::unrecordable(reason);
            let pending = Pending::new(&store, &reservation, &marker);
            (marker, pending)
        }
    };
    let backoff = Backoff::new(
        Some(Duration::MAX),
        Duration::from_millis(10),
        LONGEST_PAUSE_BEHIND.min(call.lease() / 4),
    );
    let id = reservation.id;
    let mut recording = Recording {
        store: &store,
        call: &call,
        reservation,
        outcome,
        refused: 0,
    };
    match recording.until_recorded(backoff, || ()).await {
        Ok(Recorded::Yes) => {}
        Ok(Recorded::Marked(error)) | Err(error) => {
            tracing::error!(record = %id, %error, "the effect is done, and its outcome not recorded");
        }
        Ok(Recorded::TakenOver) => {
            tracing::error!(
                record = %id,
                "the effect is done, and another call took the record over before it was recorded"
            );
        }
    }
}

struct Recording<'a, S> {
    store: &'a S,
    call: &'a Call,
    reservation: Reservation,
    outcome: Bytes,
    /// How often in a row the store has answered, but not taken the outcome.
    refused: u32,
}

impl<S: Store> Recording<'_, S> {
    /// # Errors
    /// The last one, when the time is up.
    async fn until_recorded(
        &mut self,
        mut backoff: Backoff,
        not_at_once: impl Fn(),
    ) -> Result<Recorded, Error> {
        loop {
            let error = match self.once(self.outcome.clone()).await {
                Ok(recorded) => return Ok(recorded),
                Err(error) => error,
            };
            not_at_once();
            if self.is_refused(&error).await
                && let Ok(Recorded::Yes) = self.once(marker(&error)).await
            {
                return Ok(Recorded::Marked(error));
            }
            match backoff.next() {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(error),
            }
        }
    }

    /// One try.
    async fn once(&mut self, outcome: Bytes) -> Result<Recorded, Error> {
        let patience = budget(self.call) / 3;
        let retention = self.call.retention();
        let completion = self
            .store
            .complete(&self.reservation, outcome.clone(), retention);
        match timeout(patience, completion).await {
            Ok(Ok(Held::Yes)) => return Ok(Recorded::Yes),
            Ok(Ok(Held::No)) => {}
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(no_answer()),
        }
        // A completion whose answer was lost and that is repeated finds the record completed by itself.
        let found = match timeout(patience, self.store.lookup(self.reservation.id)).await {
            Ok(found) => found?,
            Err(_) => return Err(no_answer()),
        };
        match found {
            None => self.reserve_again().await,
            Some(found) => {
                let ours = found.record.fence == self.reservation.fence
                    && matches!(&found.record.state, State::Completed { outcome: kept, .. } if *kept == outcome);
                Ok(if ours {
                    Recorded::Yes
                } else {
                    Recorded::TakenOver
                })
            }
        }
    }

    /// The store has lost the reservation, as after a restart without its data. The effect is done all the
    /// same: the record is made anew.
    async fn reserve_again(&mut self) -> Result<Recorded, Error> {
        match ask(self.store, &Request::of(self.call, Owner::fresh())).await? {
            Reserved::Granted(reservation) => {
                self.reservation = reservation;
                Err(Error::new(ErrorKind::StoreUnavailable)
                    .detail("the store had lost the reservation"))
            }
            _ => Ok(Recorded::TakenOver),
        }
    }

    /// Whether it is the outcome that the store does not take, and not the store that cannot be reached:
    /// it says so, or it goes on renewing the lease.
    async fn is_refused(&mut self, error: &Error) -> bool {
        let (store, lease) = (self.store, self.call.lease());
        let renewal = store.renew(&self.reservation, lease);
        let answers = timeout(budget(self.call) / 3, renewal).await;
        if !matches!(answers, Ok(Ok(Held::Yes))) {
            self.refused = 0;
            return false;
        }
        self.refused += 1;
        let says_so = matches!(
            error.kind(),
            ErrorKind::StoreRefused | ErrorKind::StoreExhausted
        );
        self.refused >= if says_so { 2 } else { 4 }
    }
}

fn marker(error: &Error) -> Bytes {
    outcome::unrecordable(&format!(
        "the store did not take it: {}",
        error.detail_text()
    ))
}
