use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Moment;
use crate::error::Error;
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;
use crate::protocol::{Decision, Event, Fence, OnCrash, Owner, Record, State};
use crate::retention::{Left, Retention};

/// A store that guards reservations with a lease, for functions whose effects are outside the
/// store.
///
/// Every method is **one atomic step** on one record: what two callers do at the same time must
/// come out as if one had gone after the other. Time is the store's own. Whether a record is over
/// is decided by its times, never by a purge having run.
///
/// A handle is cheap to clone and all clones are the same store.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot keep the records of an idempotent function",
    label = "not a store",
    note = "use the caller's transaction (`tx: &mut Transaction<'_, Postgres>`), a pool together with `tx = name`, or a leased store such as `MemoryStore`",
    note = "a shared reference to a transaction cannot be written through: take it as `&mut`; a static behind a lazy cell is named with `&*STORE`"
)]
pub trait Store: Clone + Send + Sync + 'static {
    /// Separates the records of several users of one store; part of the record's id.
    fn namespace(&self) -> &str {
        ""
    }

    /// Reserves the record, or tells why not, as [`protocol::decide`](crate::protocol::decide)
    /// does.
    ///
    /// The lease is at least a millisecond long. A store that cannot count so finely takes the next
    /// longer lease it can, never one without an end.
    ///
    /// A request that the store has seen before (the client sent it twice) and granted is granted
    /// again.
    ///
    /// # Errors
    /// The store cannot be used. Whether the reservation was made is unknown then; the engine asks
    /// again with the same owner or lets the lease end.
    fn reserve(
        &self,
        request: &Request<'_>,
    ) -> impl Future<Output = Result<Reserved, Error>> + Send;

    /// Records the outcome, if the reservation still holds.
    ///
    /// # Errors
    /// The store cannot be used; unknown whether the outcome is recorded.
    fn complete(
        &self,
        reservation: &Reservation,
        outcome: Bytes,
        retention: Retention,
    ) -> impl Future<Output = Result<Held, Error>> + Send;

    /// Gives the record back, if the reservation still holds.
    ///
    /// # Errors
    /// The store cannot be used; the lease ends by itself.
    fn release(
        &self,
        reservation: &Reservation,
    ) -> impl Future<Output = Result<Held, Error>> + Send;

    /// Extends the lease to `lease` from now, if the reservation still holds.
    ///
    /// A reservation under [`OnCrash::Hold`] is held from its first renewal on: after its lease it
    /// stays until it is completed, released or forgotten. The engine renews it before the body. A
    /// first renewal that the store carries out after the lease is refused ([`Held::No`]).
    ///
    /// # Errors
    /// The store cannot be used; unknown whether the lease is longer.
    fn renew(
        &self,
        reservation: &Reservation,
        lease: Duration,
    ) -> impl Future<Output = Result<Held, Error>> + Send;

    /// The record as it counts now: one that is over is `None`, purged or not, and one whose outcome
    /// is gone a tombstone ([`Record::as_of`]).
    ///
    /// # Errors
    /// The store cannot be used.
    fn lookup(&self, id: RecordId) -> impl Future<Output = Result<Option<Stored>, Error>> + Send;

    /// Removes a record that is not reserved, or whose lease is over. `false`: nothing was removed.
    ///
    /// # Errors
    /// The store cannot be used.
    fn forget(&self, id: RecordId) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Removes at most `limit` records that are over, never a reserved one; says how many. Where an
    /// outcome is gone and its key still known it may drop the outcome, once, which counts as well:
    /// called until it says fewer than `limit` it has done all there was to do. A store that expires
    /// records by itself has nothing to do.
    ///
    /// # Errors
    /// The store cannot be used.
    fn purge(&self, limit: usize) -> impl Future<Output = Result<usize, Error>> + Send;

    /// A number that all clones of this handle share, and no other store of this type in this process has
    /// while one of them lives; the address of what they share is one.
    ///
    /// With it, a repeat in the same process is answered from an outcome that could not be recorded yet
    /// instead of running the body again after the lease. The default is none.
    fn identity(&self) -> Option<usize> {
        None
    }

    /// Ends when the record may have changed since this was called (not since it was polled): a hint
    /// to ask again before the polling interval is over. The default never ends.
    fn changed(&self, _id: RecordId) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// A request to reserve.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Request<'a> {
    /// The record.
    pub id: RecordId,
    /// Who asks.
    pub owner: Owner,
    /// For which payload.
    pub fingerprint: Fingerprint,
    /// For how long.
    pub lease: Duration,
    /// What becomes of the reservation after its lease, once it is renewed ([`Store::renew`]).
    pub on_crash: OnCrash,
    /// The operation's name, kept for people to read.
    pub scope: &'a str,
    /// The key's text, unless it is hidden.
    pub key_text: Option<&'a str>,
    /// The outcome, if there is one, is going to be copied: a store that must ask further to tell how
    /// long it is still kept does so.
    pub to_copy: bool,
}

impl<'a> Request<'a> {
    /// A request; for tests of stores.
    #[must_use]
    pub fn new(id: RecordId, fingerprint: Fingerprint, lease: Duration) -> Self {
        Self {
            id,
            owner: Owner::fresh(),
            fingerprint,
            lease,
            on_crash: OnCrash::Rerun,
            scope: "",
            key_text: None,
            to_copy: false,
        }
    }

    pub(crate) fn of(call: &'a crate::operation::Call, owner: Owner) -> Self {
        Self {
            id: call.id(),
            owner,
            fingerprint: call.fingerprint(),
            lease: call.lease(),
            on_crash: call.on_crash(),
            scope: call.scope(),
            key_text: call.key_text(),
            to_copy: false,
        }
    }
}

/// What a request to reserve got.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reserved {
    /// The record is ours.
    Granted(Reservation),
    /// It is completed.
    Completed {
        /// The envelope.
        outcome: Bytes,
        /// When it was recorded.
        recorded_at: Moment,
        /// How long it is still kept.
        left: Left,
    },
    /// Somebody else holds it.
    InProgress {
        /// The time until others may take it over.
        free_in: Option<Duration>,
    },
    /// The key is known, its outcome no longer kept.
    OutcomeGone,
    /// The key is known with another payload.
    Mismatch,
    /// Its lease is over without an outcome, and it is held until somebody decides.
    Abandoned,
}

impl Reserved {
    /// What a request gets that was decided so at `now`. The record of a granted one is
    /// [`Stored::reserved`].
    #[must_use]
    pub fn from_decision(decision: Decision, request: &Request<'_>, now: Moment) -> Self {
        match decision {
            Decision::Grant(fence) | Decision::AlreadyOurs(fence) => {
                Self::Granted(Reservation::new(request, fence))
            }
            Decision::Replay {
                outcome,
                recorded_at,
                keep_until,
            } => Self::Completed {
                outcome,
                recorded_at,
                left: keep_until.map(|until| now.until(until)).into(),
            },
            Decision::InProgress { lease_until } => Self::InProgress {
                free_in: lease_until.map(|until| now.until(until)),
            },
            Decision::OutcomeGone => Self::OutcomeGone,
            Decision::Mismatch => Self::Mismatch,
            Decision::Abandoned => Self::Abandoned,
        }
    }
}

/// A reservation: what every later step is asked with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a reservation that is neither completed nor released blocks its key until the lease ends"]
#[non_exhaustive]
pub struct Reservation {
    /// The record.
    pub id: RecordId,
    /// Who holds it.
    pub owner: Owner,
    /// Under which number.
    pub fence: Fence,
    /// For which payload.
    pub fingerprint: Fingerprint,
    /// What becomes of it after its lease, once it is renewed.
    pub on_crash: OnCrash,
}

impl Reservation {
    /// The reservation that `request` got under `fence`.
    pub fn new(request: &Request<'_>, fence: Fence) -> Self {
        Self {
            id: request.id,
            owner: request.owner,
            fence,
            fingerprint: request.fingerprint,
            on_crash: request.on_crash,
        }
    }

    /// Its completion at `now`, for [`protocol::apply`](crate::protocol::apply).
    #[must_use]
    pub fn completion(&self, outcome: Bytes, retention: Retention, now: Moment) -> Event {
        Event::Complete {
            owner: self.owner,
            fence: self.fence,
            outcome,
            keep_until: retention
                .millis()
                .map(|millis| now.after(Duration::from_millis(millis))),
            known_until: retention
                .known_millis()
                .map(|millis| now.after(Duration::from_millis(millis))),
        }
    }

    /// Its renewal at `now`.
    #[must_use]
    pub fn renewal(&self, lease: Duration, now: Moment) -> Event {
        Event::Renew {
            owner: self.owner,
            fence: self.fence,
            lease_until: now.after(lease),
            hold: self.on_crash == OnCrash::Hold,
        }
    }

    /// Its end without an outcome.
    #[must_use]
    pub fn giving_back(&self) -> Event {
        Event::Release {
            owner: self.owner,
            fence: self.fence,
        }
    }
}

/// Whether a step found its reservation still holding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
// There is no third answer.
#[allow(clippy::exhaustive_enums)]
pub enum Held {
    /// It did, and the step is done.
    Yes,
    /// Another owner has it, or nobody: nothing was changed.
    No,
}

/// A record as [`Store::lookup`] shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stored {
    /// The record.
    pub record: Record,
    /// The operation's name.
    pub scope: String,
    /// The key's text, unless it is hidden.
    pub key_text: Option<String>,
    /// When it was first reserved.
    pub created_at: Moment,
    /// The store's time at the look-up; without it nobody can tell whether a lease is over, nor how
    /// long an outcome is still kept.
    pub read_at: Option<Moment>,
}

impl Stored {
    /// What a request that was granted at `now` leaves in the store.
    #[must_use]
    pub fn reserved(request: &Request<'_>, fence: Fence, now: Moment) -> Self {
        Self {
            record: Record {
                fingerprint: request.fingerprint,
                fence,
                state: State::Reserved {
                    owner: request.owner,
                    lease_until: Some(now.after(request.lease)),
                    held: false,
                },
            },
            scope: request.scope.to_owned(),
            key_text: request.key_text.map(str::to_owned),
            created_at: now,
            read_at: None,
        }
    }

    /// It as it counts at `now` ([`Record::as_of`]): what a look-up shows.
    #[must_use]
    pub fn as_of(self, now: Moment) -> Option<Self> {
        let record = self.record.as_of(now)?;
        Some(Self { record, ..self }.read_at(now))
    }

    /// A record and what people read of it.
    #[must_use]
    pub fn new(
        record: Record,
        scope: String,
        key_text: Option<String>,
        created_at: Moment,
    ) -> Self {
        Self {
            record,
            scope,
            key_text,
            created_at,
            read_at: None,
        }
    }

    /// As it was looked up at `now` by the store's clock.
    #[must_use]
    pub fn read_at(mut self, now: Moment) -> Self {
        self.read_at = Some(now);
        self
    }
}

impl<S: Store> Store for Arc<S> {
    fn namespace(&self) -> &str {
        (**self).namespace()
    }

    async fn reserve(&self, request: &Request<'_>) -> Result<Reserved, Error> {
        (**self).reserve(request).await
    }

    async fn complete(
        &self,
        reservation: &Reservation,
        outcome: Bytes,
        retention: Retention,
    ) -> Result<Held, Error> {
        (**self).complete(reservation, outcome, retention).await
    }

    async fn release(&self, reservation: &Reservation) -> Result<Held, Error> {
        (**self).release(reservation).await
    }

    async fn renew(&self, reservation: &Reservation, lease: Duration) -> Result<Held, Error> {
        (**self).renew(reservation, lease).await
    }

    async fn lookup(&self, id: RecordId) -> Result<Option<Stored>, Error> {
        (**self).lookup(id).await
    }

    async fn forget(&self, id: RecordId) -> Result<bool, Error> {
        (**self).forget(id).await
    }

    async fn purge(&self, limit: usize) -> Result<usize, Error> {
        (**self).purge(limit).await
    }

    fn identity(&self) -> Option<usize> {
        (**self).identity()
    }

    fn changed(&self, id: RecordId) -> impl Future<Output = ()> + Send {
        (**self).changed(id)
    }
}
