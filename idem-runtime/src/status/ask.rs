//! Where a call's record is asked for, resolved and forgotten.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

use super::{Holder, Status};
use crate::error::{Effect, Error, ErrorKind};
use crate::key::RecordId;
use crate::retention::Retention;
use crate::store::{Held, Request, Reservation, Store};

/// Where a call's record is asked for: what the annotated function has as its store, as a reference.
///
/// | the function's `store` | asked with |
/// |---|---|
/// | `tx` | `&mut tx`, or the pool, `&pool` |
/// | `self.pool` with `tx = name` | `&self.pool` |
/// | `self.records.on(tx)`, `self.records.pool(&self.pool)` | the same expression |
/// | a leased store, a tiered one | `&store` |
/// | `self.front.over(tx)`, `self.front.pool(&self.pool)` | the same expression |
///
/// A transaction sees what it sees: its own calls, and of others what was committed before its
/// snapshot. Postgres also tells it who is at the record now. On MySQL and SQLite a call that runs in
/// another transaction is seen through the pool only.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be asked for the record of a call",
    label = "not a store, by reference",
    note = "give a reference to what the function has as its store: `&pool`, `&mut tx`, `&store`"
)]
pub trait Asked: Send {
    #[doc(hidden)]
    fn namespace(&self) -> &str;

    #[doc(hidden)]
    fn look(&mut self, id: RecordId) -> impl Future<Output = Result<Status<Bytes>, Error>> + Send;

    /// Removes a record that nobody holds.
    #[doc(hidden)]
    fn remove(&mut self, id: RecordId) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Completes a record whose call did not come to an end.
    #[doc(hidden)]
    fn resolve(
        &mut self,
        id: RecordId,
        resolution: Resolution,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

impl<S: Store> Asked for &S {
    fn namespace(&self) -> &str {
        Store::namespace(*self)
    }

    async fn look(&mut self, id: RecordId) -> Result<Status<Bytes>, Error> {
        match self.lookup(id).await? {
            Some(stored) => Status::of(stored),
            None => Ok(Status::Absent),
        }
    }

    async fn remove(&mut self, id: RecordId) -> Result<bool, Error> {
        if self.forget(id).await? {
            return Ok(true);
        }
        in_nobodys_hands(self.look(id).await?).map(|()| false)
    }

    async fn resolve(&mut self, id: RecordId, resolution: Resolution) -> Result<(), Error> {
        if let Some(stored) = self.lookup(id).await? {
            let (fingerprint, fence) = (stored.record.fingerprint, stored.record.fence);
            if let Status::Abandoned(Holder {
                owner: Some(owner), ..
            }) = Status::of(stored)?
            {
                // The one that was left behind is completed, in its owner's name: should another call
                // have taken it over meanwhile, this changes nothing.
                let request = Request {
                    owner,
                    ..Request::new(id, fingerprint, Duration::ZERO)
                };
                let left = Reservation::new(&request, fence);
                let outcome = resolution.outcome.clone();
                if let Held::Yes = self.complete(&left, outcome, resolution.retention).await? {
                    return Ok(());
                }
            }
        }
        resolution.is_recorded(self.look(id).await?)
    }
}

/// Refuses to forget what is running.
pub(super) fn in_nobodys_hands(status: Status<Bytes>) -> Result<(), Error> {
    match status {
        Status::InProgress(holder) => Err(running(
            &holder,
            "a record is not forgotten while its call runs",
        )),
        _ => Ok(()),
    }
}

fn running(holder: &Holder, detail: &str) -> Error {
    let error = Error::new(ErrorKind::InProgress)
        .detail(detail)
        .effect_is(Effect::None);
    match holder.free_in {
        Some(free_in) => error.after(free_in),
        None => error,
    }
}

/// How a call is to be recorded that did not come to an end.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Resolution {
    pub(super) outcome: Bytes,
    pub(super) retention: Retention,
    /// Whether it says that the effect is done, and of the outcome nothing.
    pub(super) is_bare: bool,
}

impl Resolution {
    /// Whether a record that stands like this says the same.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn is_recorded(&self, status: Status<Bytes>) -> Result<(), Error> {
        let not_abandoned = |detail: &str| Error::new(ErrorKind::NotAbandoned).detail(detail);
        Err(match status {
            Status::Completed(done) if self.is_bare || done.outcome == self.outcome => {
                return Ok(());
            }
            Status::OutcomeGone(_) if self.is_bare => return Ok(()),
            Status::Completed(_) => {
                not_abandoned("it is completed with another outcome").effect_is(Effect::Done)
            }
            Status::OutcomeGone(_) => {
                not_abandoned("it is done and its outcome is not kept").effect_is(Effect::Done)
            }
            Status::InProgress(holder) => {
                running(&holder, "a call is not resolved while it may still run")
            }
            // Abandoned again, by another call, since it was looked at.
            Status::Abandoned(holder) => running(&holder, "another call was at it meanwhile"),
            Status::Absent => not_abandoned("nothing is recorded under its key"),
        })
    }
}

/// How the call with this record stands; for tools that know ids and no functions. Ids are shown by
/// errors, logs and [`CallRef::record_id`](super::CallRef::record_id), and contain the namespace.
///
/// # Errors
/// The store cannot be used, or the record is of a form that this version does not know.
///
/// # Cancel safety
/// Changes nothing.
pub async fn of_record(mut store: impl Asked, id: RecordId) -> Result<Status<Bytes>, Error> {
    store.look(id).await
}
