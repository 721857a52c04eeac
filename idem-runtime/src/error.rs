//! One error type. Every error says what happened ([`ErrorKind`]), what it means for the effect
//! ([`Effect`]) and what to do ([`Retry`], and in words in its `Display` form).

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::key::RecordId;

type Source = Arc<dyn StdError + Send + Sync + 'static>;

/// Why an idempotent call did not give its function's own answer.
///
/// It is a pointer in size, so that service results stay small. The user's error type must be
/// `From<Error>`.
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    scope: Option<String>,
    key: Option<String>,
    shows_key: bool,
    id: Option<RecordId>,
    detail: Option<String>,
    cause: Option<String>,
    retry_after: Option<Duration>,
    effect: Option<Effect>,
    retry: Option<Retry>,
    unrecorded: Option<Bytes>,
    source: Option<Source>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A part of the key is empty or blank.
    EmptyKeyPart,
    /// The key is longer than [`MAX_KEY_BYTES`](crate::key::MAX_KEY_BYTES).
    KeyTooLong,
    /// A retention of zero, or above [`MAX_RETENTION`](crate::retention::MAX_RETENTION).
    InvalidTtl,
    /// A lease of less than a millisecond (a deadline that has passed), or above the longest
    /// retention.
    InvalidLease,
    /// A call in a batch has another key than the batch was told.
    KeyMismatch,
    /// The payload cannot be fingerprinted.
    FingerprintFailed,
    /// The first call under this key is still running.
    InProgress,
    /// The key is known with another payload.
    FingerprintMismatch,
    /// The same operation with the same key is already running on this very call path.
    Reentrant,
    /// The database has ended, or will not commit, the transaction: run the whole transaction again.
    RetryTransaction,
    /// The transaction was ended, replaced or aborted before the call was recorded: by a `COMMIT` or a
    /// `ROLLBACK` of the caller's or the body's own, or by an error that the body did not pass on.
    TransactionEnded,
    /// A store could not be reached or did not answer in time.
    StoreUnavailable,
    /// The store refuses what the call asks of it, and will refuse it again: a missing right, a
    /// row-level policy, a read-only file, a value that is too large for it.
    StoreRefused,
    /// The store has no room for the call: its lock table, its disk, its memory, its connections.
    StoreExhausted,
    /// The database refused the commit, because of a constraint of the caller's own schema.
    CommitRefused,
    /// The store's schema is missing or not the expected one, or the store is set up so that a promise
    /// would not hold.
    Schema,
    /// A table of the application's own is missing, or its columns or their types are not what the
    /// call needs; or a name is not one.
    TableMismatch,
    /// The commit was sent and its answer lost.
    CommitUnknown,
    /// Another call took the reservation over while the body ran.
    LostOwnership,
    /// The lease could not be renewed in time while the body ran; no other call is known to have taken
    /// the reservation over.
    LeaseExpired,
    /// The body succeeded and its outcome could not be recorded.
    EffectDoneNotRecorded,
    /// The outcome cannot be stored so that a replay would give the same value.
    OutcomeNotRecordable,
    /// The outcome is larger than the operation records (`max_outcome`).
    OutcomeTooLarge,
    /// The effect is done and its outcome is no longer kept, or was too large to be.
    OutcomeGone,
    /// A recorded outcome no longer decodes as the function's type.
    OutcomeUndecodable,
    /// A reservation was left without an outcome: its call ended midway, the effect is unknown.
    Abandoned,
    /// A call that was to be resolved is not an abandoned one: nothing is recorded, or another outcome.
    NotAbandoned,
    /// Two different functions have the same operation name (scope).
    DuplicateScope,
    /// A row holds a text that is no state of its machine.
    UnknownState,
    /// A saga has no recorded result of a step of this name: it is misspelt, or comes later.
    UnknownStep,
    /// The database did not make a transition that is allowed, or made more than one.
    StateNotChanged,
}

/// What an error means for the function's effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Effect {
    /// This call had no effect, or it goes with the transaction, which cannot be committed.
    None,
    /// The effect is done.
    Done,
    /// It cannot be known here; ask with the same key.
    Unknown,
}

/// Whether and how the call may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Retry {
    /// Repeat the call after the given time, if there is one. After [`ErrorKind::InProgress`] the
    /// transaction that it was made in is intact and may be used; after any other kind use a new one.
    Later(Option<Duration>),
    /// Roll the transaction back and run all of it again.
    NewTransaction,
    /// Repeating the same call cannot help.
    Never,
}

impl Error {
    /// An error of `kind`; for stores and edges.
    #[must_use]
    pub fn new(kind: ErrorKind) -> Self {
        Self(Box::new(Inner {
            kind,
            scope: None,
            key: None,
            shows_key: false,
            id: None,
            detail: None,
            cause: None,
            retry_after: None,
            effect: None,
            retry: None,
            unrecorded: None,
            source: None,
        }))
    }

    /// Adds a sentence about this occurrence.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Says in a few words why the store failed; beside the detail, and without any payload.
    #[cfg(feature = "_sqlx")]
    pub(crate) fn because(mut self, cause: String) -> Self {
        self.0.cause = Some(cause);
        self
    }

    /// The same occurrence, seen as something else.
    #[cfg(feature = "_sqlx")]
    pub(crate) fn of_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(
        mut self,
        source: impl Into<Box<dyn StdError + Send + Sync + 'static>>,
    ) -> Self {
        self.0.source = Some(source.into().into());
        self
    }

    /// The same error, for another call that ends for the same reason.
    #[cfg(feature = "_sqlx")]
    pub(crate) fn again(&self) -> Self {
        let mut again = Self::new(self.0.kind);
        again.0.detail.clone_from(&self.0.detail);
        again.0.retry_after = self.0.retry_after;
        again.0.effect = self.0.effect;
        again.0.retry = self.0.retry;
        again.0.source.clone_from(&self.0.source);
        again
    }

    /// Says when to try again.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.0.retry_after = Some(wait);
        self
    }

    /// Sets the effect where the kind alone does not tell it.
    #[must_use]
    pub fn effect_is(mut self, effect: Effect) -> Self {
        self.0.effect = Some(effect);
        self
    }

    /// Sets what to do where the kind alone does not tell it.
    #[cfg(feature = "_sqlx")]
    pub(crate) fn retry_is(mut self, retry: Retry) -> Self {
        self.0.retry = Some(retry);
        self
    }

    /// Names the call. A key that is shown stands in the texts of the error, any other only in
    /// [`Error::key`].
    pub(crate) fn at(
        mut self,
        scope: &str,
        key: Option<&str>,
        shows_key: bool,
        id: RecordId,
    ) -> Self {
        if self.0.id.is_none() {
            self.0.scope = Some(scope.to_owned());
            self.0.key = key.map(str::to_owned);
            self.0.shows_key = shows_key;
            self.0.id = Some(id);
        }
        self
    }

    pub(crate) fn in_operation(mut self, scope: &str) -> Self {
        self.0.scope = Some(scope.to_owned());
        self
    }

    pub(crate) fn carrying(mut self, outcome: Bytes) -> Self {
        self.0.unrecorded = Some(outcome);
        self
    }

    pub(crate) fn carrying_nothing(mut self) -> Self {
        self.0.unrecorded = None;
        self
    }

    /// What [`Error::detail`] added.
    pub(crate) fn detail_text(&self) -> &str {
        self.0.detail.as_deref().unwrap_or_default()
    }

    /// What happened.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The operation, once it is known.
    #[must_use]
    pub fn scope(&self) -> Option<&str> {
        self.0.scope.as_deref()
    }

    /// The key's text, unless the operation hides it (`key_text = "hidden"`).
    ///
    /// Keys carry card numbers and names: neither `Display` nor `Debug` shows the key unless the
    /// operation says `key_text = "shown"`.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    fn shown_key(&self) -> Option<&str> {
        self.key().filter(|_| self.0.shows_key)
    }

    /// The record's id, once it is known.
    #[must_use]
    pub fn record_id(&self) -> Option<RecordId> {
        self.0.id
    }

    /// What this error means for the effect.
    #[must_use]
    pub fn effect(&self) -> Effect {
        use ErrorKind as K;
        if let Some(effect) = self.0.effect {
            return effect;
        }
        match self.0.kind {
            K::CommitUnknown
            | K::LostOwnership
            | K::LeaseExpired
            | K::Abandoned
            | K::TransactionEnded => Effect::Unknown,
            K::EffectDoneNotRecorded | K::OutcomeGone | K::OutcomeUndecodable => Effect::Done,
            K::EmptyKeyPart
            | K::KeyTooLong
            | K::KeyMismatch
            | K::InvalidTtl
            | K::InvalidLease
            | K::FingerprintFailed
            | K::InProgress
            | K::FingerprintMismatch
            | K::Reentrant
            | K::RetryTransaction
            | K::StoreUnavailable
            | K::StoreRefused
            | K::StoreExhausted
            | K::CommitRefused
            | K::Schema
            | K::TableMismatch
            | K::OutcomeTooLarge
            | K::OutcomeNotRecordable
            | K::NotAbandoned
            | K::DuplicateScope
            | K::UnknownState
            | K::UnknownStep
            | K::StateNotChanged => Effect::None,
        }
    }

    /// Whether and how to repeat the call.
    #[must_use]
    pub fn retry(&self) -> Retry {
        use ErrorKind as K;
        if let Some(retry) = self.0.retry {
            return retry;
        }
        match self.0.kind {
            K::InProgress
            | K::StoreUnavailable
            | K::StoreExhausted
            | K::CommitUnknown
            | K::LostOwnership
            | K::LeaseExpired => Retry::Later(self.0.retry_after),
            K::RetryTransaction => Retry::NewTransaction,
            K::EmptyKeyPart
            | K::KeyTooLong
            | K::KeyMismatch
            | K::InvalidTtl
            | K::InvalidLease
            | K::FingerprintFailed
            | K::FingerprintMismatch
            | K::Reentrant
            | K::TransactionEnded
            | K::StoreRefused
            | K::CommitRefused
            | K::Schema
            | K::TableMismatch
            | K::EffectDoneNotRecorded
            | K::OutcomeNotRecordable
            | K::OutcomeTooLarge
            | K::OutcomeGone
            | K::OutcomeUndecodable
            | K::Abandoned
            | K::NotAbandoned
            | K::DuplicateScope
            | K::UnknownState
            | K::UnknownStep
            | K::StateNotChanged => Retry::Never,
        }
    }

    /// What happened, without what it means for the effect: for a text that says that itself.
    #[cfg(feature = "_sqlx")]
    pub(crate) fn words(&self) -> String {
        let (what, _) = self.0.kind.text();
        match &self.0.detail {
            Some(detail) => format!("{what}: {detail}"),
            None => what.to_owned(),
        }
    }

    /// The outcome that could not be recorded: of [`ErrorKind::EffectDoneNotRecorded`], of
    /// [`ErrorKind::OutcomeTooLarge`] and [`ErrorKind::OutcomeNotRecordable`], and of
    /// [`ErrorKind::LostOwnership`] after the body had run to its end.
    ///
    /// `None` where no codec of this build can write it and read it again: NaN and maps whose keys are
    /// no text need the feature `msgpack`. A value that loses something when it is written is given
    /// without what it lost.
    #[must_use]
    pub fn unrecorded<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        let bytes = self.0.unrecorded.as_ref()?;
        crate::outcome::decode_ok(bytes).ok()
    }
}

impl ErrorKind {
    /// What happened, and what to do, in two sentences.
    fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::EmptyKeyPart => (
                "a part of the idempotency key is empty or blank",
                "nothing ran; give every part of the key a value",
            ),
            Self::KeyTooLong => (
                "the idempotency key is too long",
                "nothing ran; use a shorter identity as the key",
            ),
            Self::InvalidTtl => (
                "the retention (`ttl`) is not valid",
                "nothing ran; use more than zero and at most 36500 days, or \"never\"",
            ),
            Self::InvalidLease => (
                "the lease is not valid",
                "nothing ran; use at least a millisecond and at most 36500 days; a deadline must lie \
                 ahead",
            ),
            Self::KeyMismatch => (
                "the call has another key than its batch was told",
                "nothing ran; give the companion of the function that is called, and the same arguments",
            ),
            Self::FingerprintFailed => (
                "the payload cannot be fingerprinted",
                "nothing ran; choose the payload with `fingerprint(..)`",
            ),
            Self::InProgress => (
                "the first call under this key is still running",
                "nothing ran here; repeat the call with the same key later",
            ),
            Self::FingerprintMismatch => (
                "the key is known with another payload",
                "nothing ran here; a new intent needs a new key. Where the difference does not \
                 matter, choose the payload with `fingerprint(..)`",
            ),
            Self::Reentrant => (
                "the function called itself with its own key",
                "nothing ran in the inner call; do not call it from its own body",
            ),
            Self::RetryTransaction => (
                "the database cannot go on with this transaction",
                "nothing remains of it; roll back and run the whole transaction again",
            ),
            Self::TransactionEnded => (
                "the transaction ended, or was aborted, before the call was recorded",
                "the outcome is not recorded; roll back, pass database errors on, and leave the end \
                 of the transaction to its owner",
            ),
            Self::StoreUnavailable => (
                "the store could not be used",
                "repeat the call with the same key later",
            ),
            Self::StoreRefused => (
                "the store refuses this call",
                "nothing was recorded; repeating cannot help until the cause is removed",
            ),
            Self::StoreExhausted => (
                "the store has no room for this call",
                "nothing was recorded; make room, then repeat the call with the same key",
            ),
            Self::CommitRefused => (
                "the database refused the commit",
                "nothing was committed; a constraint of your own schema decides, so repeating the \
                 same call cannot help",
            ),
            Self::Schema => (
                "the store's schema is not usable",
                "nothing ran; run the migrations of this version",
            ),
            Self::TableMismatch => (
                "a table of the application is not what the call needs",
                "nothing was changed; compare its name, columns and types with those of the call",
            ),
            Self::CommitUnknown => (
                "the commit was sent and its answer lost",
                "repeat the call with the same key: it replays if the commit held",
            ),
            Self::LostOwnership => (
                "another call took the reservation over",
                "repeat the call with the same key to get its outcome",
            ),
            Self::LeaseExpired => (
                "the lease could not be renewed in time",
                "the body may have run; ask for the call's status before repeating it",
            ),
            Self::EffectDoneNotRecorded => (
                "the effect is done and its outcome could not be recorded",
                "do not repeat it; the outcome is in the error",
            ),
            Self::OutcomeNotRecordable => (
                "the outcome cannot be stored and read back as the same value",
                "the outcome is not recorded; change the type or the codec",
            ),
            Self::OutcomeTooLarge => (
                "the outcome is larger than this operation records",
                "keep a smaller value (`keep`, `rebuild`), or raise `max_outcome`",
            ),
            Self::OutcomeGone => (
                "the call is done and its outcome is not kept",
                "nothing ran here; ask for the result where the effect is",
            ),
            Self::OutcomeUndecodable => (
                "the recorded outcome does not decode as this version's type",
                "the effect is done and was not repeated; make the type read the older form",
            ),
            Self::Abandoned => (
                "an earlier call ended midway and left its reservation without an outcome",
                "find out whether its effect happened, then resolve the record with its outcome, or forget it",
            ),
            Self::NotAbandoned => (
                "the call is not an abandoned one",
                "nothing was changed; look at its status",
            ),
            Self::DuplicateScope => (
                "two functions have the same operation name",
                "nothing ran; give one of them another `scope`",
            ),
            Self::UnknownStep => (
                "no step of this name has a recorded result here",
                "nothing ran; ask for an earlier step of the saga, by its name",
            ),
            Self::UnknownState => (
                "the row holds a text that is not a state of its machine",
                "nothing was changed; run a version that knows the state, or repair the row",
            ),
            Self::StateNotChanged => (
                "the database did not make the transition as asked",
                "roll the transaction back; repeating it cannot help",
            ),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, mut advice) = self.0.kind.text();
        if self.0.retry == Some(Retry::NewTransaction) {
            (_, advice) = ErrorKind::RetryTransaction.text();
        }
        f.write_str(what)?;
        if let Some(scope) = &self.0.scope {
            write!(f, " [{scope}")?;
            if let Some(key) = self.shown_key() {
                write!(f, " {key}")?;
            }
            if let Some(id) = self.0.id {
                write!(f, " {id}")?;
            }
            f.write_str("]")?;
        }
        if let Some(detail) = &self.0.detail {
            write!(f, ": {detail}")?;
        }
        if let Some(cause) = &self.0.cause {
            write!(f, ": {cause}")?;
        }
        let effect = match self.effect() {
            Effect::None => "none",
            Effect::Done => "done",
            Effect::Unknown => "unknown",
        };
        write!(f, " (effect: {effect}; {advice})")
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("scope", &self.0.scope)
            .field("key", &self.shown_key())
            .field("id", &self.0.id)
            .field("detail", &self.0.detail)
            .field("cause", &self.0.cause)
            .field("effect", &self.effect())
            .field("retry", &self.retry())
            .field("source", &self.0.source)
            .finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests;
