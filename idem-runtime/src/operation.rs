//! An operation (one annotated function) and one call of it.

use std::time::Duration;

#[cfg(feature = "_sqlx")]
use crate::duplicates::DuplicateRate;
use crate::error::{Error, ErrorKind};
use crate::fingerprint::{Fingerprint, FingerprintBuilder};
use crate::identity::Identity;
use crate::key::{KeyBuilder, RecordId, Scope, UniqueScope};
use crate::observe::{Answered, Report};
use crate::outcome::CodecId;
use crate::protocol::OnCrash;
use crate::retention::{MAX_RETENTION, Retention, Tombstone};

/// What a duplicate does while the first call still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InProgress {
    /// Waits up to this long, then is refused.
    Wait(Duration),
    /// Is refused at once.
    Reject,
}

/// What becomes of a reservation with a lease when the call's future is dropped, or its body panics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnCancel {
    /// It is held until its lease ends: how far the body got is unknown.
    #[default]
    Hold,
    /// It is given back at once: the body leaves no effect behind when it is dropped midway.
    Release,
}

/// What becomes of a body whose lease is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLostLease {
    /// It is dropped at its next await.
    #[default]
    Cancel,
    /// It runs to its end; whether its outcome still counts is asked then.
    Continue,
}

/// What becomes of an outcome that is larger than [`Operation::max_outcome`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Oversize {
    /// The call is refused with [`ErrorKind::OutcomeTooLarge`].
    #[default]
    Refuse,
    /// Only its size is recorded: the first caller gets it, later ones [`ErrorKind::OutcomeGone`].
    Tombstone,
}

/// Where the readable text of a key may stand. A record is found by the key's digest in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyText {
    /// Nowhere.
    Hidden,
    /// In the store, beside the record, and in [`Error::key`]; in no text that may be logged.
    #[default]
    Stored,
    /// Also in the `Display` and `Debug` forms of errors.
    Shown,
}

/// How many bytes an encoded outcome may have unless the attribute says otherwise.
pub const DEFAULT_MAX_OUTCOME: u64 = 1 << 20;
/// How long a duplicate waits unless the attribute says otherwise.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(30);
/// The lease of a reservation in a leased store unless the attribute says otherwise.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// One annotated function: everything that does not depend on the call.
#[derive(Debug)]
pub struct Operation {
    scope: Scope,
    unique_scope: UniqueScope,
    retention: Option<Retention>,
    tombstone: Tombstone,
    in_progress: InProgress,
    lease: Duration,
    on_cancel: OnCancel,
    on_crash: OnCrash,
    on_lost_lease: OnLostLease,
    max_outcome: u64,
    oversize: Oversize,
    codec: CodecId,
    schema: u32,
    key_text: KeyText,
    #[cfg(feature = "_sqlx")]
    retries: u32,
    #[cfg(feature = "_sqlx")]
    duplicates: DuplicateRate,
}

impl Operation {
    /// An operation with the defaults; a retention must still be given.
    #[must_use]
    pub const fn new(scope: Scope) -> Self {
        Self {
            scope,
            unique_scope: UniqueScope::unclaimed(),
            retention: None,
            tombstone: Tombstone::None,
            in_progress: InProgress::Wait(DEFAULT_WAIT),
            lease: DEFAULT_LEASE,
            on_cancel: OnCancel::Hold,
            on_crash: OnCrash::Rerun,
            on_lost_lease: OnLostLease::Cancel,
            max_outcome: DEFAULT_MAX_OUTCOME,
            oversize: Oversize::Refuse,
            codec: CodecId::Json,
            schema: 0,
            key_text: KeyText::Stored,
            #[cfg(feature = "_sqlx")]
            retries: 0,
            #[cfg(feature = "_sqlx")]
            duplicates: DuplicateRate::new(),
        }
    }

    /// The scope belongs to the function at this place alone: a second function that claims it is refused
    /// at its first call.
    #[must_use]
    #[track_caller]
    pub const fn unique_scope(mut self) -> Self {
        self.unique_scope.place = Some(std::panic::Location::caller());
        self
    }

    /// A retention that the attribute has checked.
    #[must_use]
    pub const fn retention_millis(mut self, millis: u64) -> Self {
        self.retention = Some(Retention::from_millis_unchecked(millis));
        self
    }

    /// `ttl = "never"`.
    #[must_use]
    pub const fn retention_forever(mut self) -> Self {
        self.retention = Some(Retention::FOREVER);
        self
    }

    /// The call brings its retention with [`Call::retain_for`].
    #[must_use]
    pub const fn retention_at_run_time(mut self) -> Self {
        self.retention = None;
        self
    }

    /// How long the key is known after the retention; the attribute has checked it.
    #[must_use]
    pub const fn tombstone_millis(mut self, millis: u64) -> Self {
        self.tombstone = Tombstone::Millis(millis);
        self
    }

    /// `tombstone = "forever"`.
    #[must_use]
    pub const fn tombstone_forever(mut self) -> Self {
        self.tombstone = Tombstone::Forever;
        self
    }

    /// A duplicate waits this long.
    #[must_use]
    pub const fn wait_millis(mut self, millis: u64) -> Self {
        self.in_progress = InProgress::Wait(Duration::from_millis(millis));
        self
    }

    /// A duplicate is refused at once.
    #[must_use]
    pub const fn reject(mut self) -> Self {
        self.in_progress = InProgress::Reject;
        self
    }

    /// The lease of a reservation in a leased store.
    #[must_use]
    pub const fn lease_millis(mut self, millis: u64) -> Self {
        self.lease = Duration::from_millis(millis);
        self
    }

    /// A dropped call, or one whose body panicked, gives its reservation back at once instead of
    /// holding it until the lease ends ([`OnCancel`]).
    #[must_use]
    pub const fn on_cancel_release(mut self) -> Self {
        self.on_cancel = OnCancel::Release;
        self
    }

    /// A reservation whose lease ended without an outcome is not taken over: calls are refused with
    /// [`ErrorKind::Abandoned`] until somebody forgets the record ([`OnCrash`]).
    #[must_use]
    pub const fn on_crash_hold(mut self) -> Self {
        self.on_crash = OnCrash::Hold;
        self
    }

    /// A body whose lease is lost runs to its end ([`OnLostLease`]).
    #[must_use]
    pub const fn on_lost_lease_continue(mut self) -> Self {
        self.on_lost_lease = OnLostLease::Continue;
        self
    }

    /// The most bytes that an encoded outcome may have.
    #[must_use]
    pub const fn max_outcome(mut self, bytes: u64) -> Self {
        self.max_outcome = bytes;
        self
    }

    /// Of a value that is too large the size is recorded ([`Oversize`]).
    #[must_use]
    pub const fn oversize_tombstone(mut self) -> Self {
        self.oversize = Oversize::Tombstone;
        self
    }

    /// How outcomes are encoded.
    #[must_use]
    pub const fn codec(mut self, codec: CodecId) -> Self {
        self.codec = codec;
        self
    }

    /// The version of the outcome type.
    #[must_use]
    pub const fn schema(mut self, version: u32) -> Self {
        self.schema = version;
        self
    }

    /// Where the key's text may stand ([`KeyText`]).
    #[must_use]
    pub const fn key_text_is(mut self, key_text: KeyText) -> Self {
        self.key_text = key_text;
        self
    }

    /// How often the framework runs a transaction of its own again after a serialization failure.
    #[cfg(feature = "_sqlx")]
    #[must_use]
    pub const fn retries(mut self, times: u32) -> Self {
        self.retries = times;
        self
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// How long an outcome is kept, and its key known, where no call says so: a retention that is known
    /// at run time only is unknown here, and one without an end forgets nothing too early.
    pub(crate) fn retention(&self) -> Retention {
        self.retention_of(self.retention)
    }

    fn retention_of(&self, retention: Option<Retention>) -> Retention {
        retention.unwrap_or(Retention::FOREVER).and(self.tombstone)
    }

    /// The most bytes that an encoded outcome may have.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.max_outcome
    }

    /// How outcomes are encoded.
    pub(crate) fn codec_id(&self) -> CodecId {
        self.codec
    }

    /// The version of the outcome type.
    pub(crate) fn schema_version(&self) -> u32 {
        self.schema
    }

    /// Puts operation, key and id into an error.
    pub(crate) fn name(&self, error: Error, identity: &Identity, id: RecordId) -> Error {
        let shown = self.key_text == KeyText::Shown;
        error.at(identity.scope(), self.key_text(identity), shown, id)
    }

    /// The key's text, unless it is hidden.
    pub(crate) fn key_text<'i>(&self, identity: &'i Identity) -> Option<&'i str> {
        (self.key_text != KeyText::Hidden).then(|| identity.key())
    }
}

/// One call: key and fingerprint are computed once, before the body.
#[derive(Clone, Debug)]
pub struct Call {
    operation: &'static Operation,
    identity: Identity,
    id: RecordId,
    fingerprint: Fingerprint,
    retention: Option<Retention>,
    lease: Duration,
    report: Report,
}

impl Call {
    /// `Here` is the type of an item inside the annotated function, `types` the names of the type
    /// arguments.
    ///
    /// # Errors
    /// A blank key part, a key that is too long, a payload without fingerprint, a scope that another
    /// function has. Nothing has run.
    pub fn prepare<Here>(
        operation: &'static Operation,
        here: &Here,
        types: &[&'static str],
        key: KeyBuilder,
        fingerprint: FingerprintBuilder,
    ) -> Result<Self, Error> {
        let identity = Identity::new(&operation.scope, here, types, key)?;
        operation.unique_scope.claim(identity.scope())?;
        let named = |error: Error| error.in_operation(identity.scope());
        let fingerprint = fingerprint.finish().map_err(named)?;
        Ok(Self {
            operation,
            id: identity.record_id(""),
            identity,
            fingerprint,
            retention: operation.retention,
            lease: operation.lease,
            report: Report::nobody(),
        })
    }

    /// Sets a retention that is known at run time only.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidTtl`].
    pub fn retain_for(mut self, ttl: Duration) -> Result<Self, Error> {
        self.retention = Some(Retention::new(ttl).map_err(|e| self.name(e))?);
        Ok(self)
    }

    /// Sets a lease that is known at run time only, say from a deadline.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLease`] for less than a millisecond (a deadline that has passed is not
    /// "no deadline") and for more than [`MAX_RETENTION`]. Nothing has run.
    pub fn lease_for(mut self, lease: Duration) -> Result<Self, Error> {
        self.lease = lease;
        self.check_lease()?;
        Ok(self)
    }

    /// Whether the lease, wherever it comes from, is one; asked before the store is.
    pub(crate) fn check_lease(&self) -> Result<(), Error> {
        if self.lease < Duration::from_millis(1) || self.lease > MAX_RETENTION {
            let error = self.error(ErrorKind::InvalidLease);
            return Err(error.detail(format!("lease is {:?}", self.lease)));
        }
        Ok(())
    }

    /// Says who is told how it is answered.
    pub(crate) fn reporting(mut self, report: Report) -> Self {
        self.report = report;
        self
    }

    /// That it is the call which its observer waits for. To be asked outside of any namespace.
    ///
    /// # Errors
    /// [`ErrorKind::KeyMismatch`].
    pub(crate) fn is_expected(&self) -> Result<(), Error> {
        if self.report.admits(self.id()) {
            return Ok(());
        }
        Err(self.error(ErrorKind::KeyMismatch))
    }

    #[cfg(feature = "_sqlx")]
    pub(crate) fn report(&self) -> &Report {
        &self.report
    }

    /// The backstop answered, or could not be asked, and the body has not run.
    pub(crate) fn answered_by_backstop(&self, found: bool) {
        if found {
            let recorded_at = None;
            self.report
                .answered(self.id, Answered::Replay { recorded_at });
        }
    }

    /// Moves the record into a store's namespace.
    pub(crate) fn enter_namespace(&mut self, namespace: &str) {
        if !namespace.is_empty() {
            self.id = self.identity.record_id(namespace);
        }
    }

    /// The operation's name.
    #[must_use]
    pub fn scope(&self) -> &str {
        self.identity.scope()
    }

    /// The key's text, unless it is hidden.
    #[must_use]
    pub fn key_text(&self) -> Option<&str> {
        self.operation.key_text(&self.identity)
    }

    /// The record's id.
    #[must_use]
    pub fn id(&self) -> RecordId {
        self.id
    }

    /// The payload's digest.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// How long the outcome is kept, and the key known.
    #[must_use]
    pub fn retention(&self) -> Retention {
        self.operation.retention_of(self.retention)
    }

    /// What this call does while another one runs.
    #[must_use]
    pub fn in_progress(&self) -> InProgress {
        self.operation.in_progress
    }

    /// The lease in a leased store.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// What becomes of its reservation when it is dropped.
    #[must_use]
    pub fn on_cancel(&self) -> OnCancel {
        self.operation.on_cancel
    }

    /// What it does with a reservation that was left behind.
    #[must_use]
    pub fn on_crash(&self) -> OnCrash {
        self.operation.on_crash
    }

    /// What becomes of its body when the lease is lost.
    #[must_use]
    pub fn on_lost_lease(&self) -> OnLostLease {
        self.operation.on_lost_lease
    }

    pub(crate) fn max_outcome(&self) -> u64 {
        self.operation.max_outcome
    }

    pub(crate) fn oversize(&self) -> Oversize {
        self.operation.oversize
    }

    pub(crate) fn codec(&self) -> CodecId {
        self.operation.codec
    }

    pub(crate) fn schema(&self) -> u32 {
        self.operation.schema
    }

    #[cfg(feature = "_sqlx")]
    pub(crate) fn retries(&self) -> u32 {
        self.operation.retries
    }

    #[cfg(feature = "_sqlx")]
    pub(crate) fn duplicates(&self) -> &'static DuplicateRate {
        &self.operation.duplicates
    }

    /// Puts operation, key and id into an error.
    pub(crate) fn name(&self, error: Error) -> Error {
        self.operation.name(error, &self.identity, self.id)
    }

    /// An error of this call.
    pub(crate) fn error(&self, kind: ErrorKind) -> Error {
        self.name(Error::new(kind))
    }
}
