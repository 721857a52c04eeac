//! One call of an annotated function, known by its key.

use std::fmt;

use bytes::Bytes;

use super::ask::Resolution;
use super::{Asked, Status};
use crate::engine::Contract;
use crate::error::{Error, ErrorKind};
use crate::identity::Identity;
use crate::key::{KeyBuilder, RecordId};
use crate::operation::Operation;
use crate::outcome;

/// One call of an annotated function, known by its key: asks for its record, resolves it, or forgets it. Made by
/// the function's companion (`companion = name`).
///
/// `T` and `E` are those of the function; with `keep`, `T` is what is kept.
pub struct CallRef<T, E> {
    operation: &'static Operation,
    identity: Identity,
    contract: Contract<T, E>,
}

impl<T, E> CallRef<T, E> {
    /// For companions.
    ///
    /// # Errors
    /// The arguments make no key.
    #[doc(hidden)]
    pub fn new<Here>(
        operation: &'static Operation,
        here: &Here,
        types: &[&'static str],
        key: KeyBuilder,
        contract: Contract<T, E>,
    ) -> Result<Self, Error> {
        Ok(Self {
            operation,
            identity: Identity::new(operation.scope(), here, types, key)?,
            contract,
        })
    }

    /// The operation's name.
    #[must_use]
    pub fn scope(&self) -> &str {
        self.identity.scope()
    }

    /// The key's text, unless it is hidden (`key_text = "hidden"`).
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.operation.key_text(&self.identity)
    }

    /// The record's id in a store with this namespace; most have none, `""`.
    #[must_use]
    pub fn record_id(&self, namespace: &str) -> RecordId {
        self.identity.record_id(namespace)
    }

    /// How the call stands in `store`. Nothing runs and nothing waits for the call.
    ///
    /// # Errors
    /// The store cannot be used; or [`OutcomeUndecodable`](crate::ErrorKind::OutcomeUndecodable): the
    /// call is done, and this build cannot read its outcome.
    ///
    /// # Cancel safety
    /// Changes nothing. A transaction on MySQL whose statement was dropped cannot be used further.
    pub async fn status(&self, mut store: impl Asked) -> Result<Status<Result<T, E>>, Error> {
        let id = self.record_id(store.namespace());
        let named = |error: Error| self.operation.name(error, &self.identity, id);
        let status = store.look(id).await.map_err(named)?;
        let schema = self.operation.schema_version();
        let decode = |envelope: &[u8]| self.contract.decode(schema, envelope);
        status.decoded(decode).map_err(named)
    }

    /// Removes the call's record, and copies of it in a front: the next call with this key runs.
    /// `false`: there was none, or its time is over. An abandoned reservation is removed as well.
    ///
    /// It is the decision that the effect may happen again, so find out first whether it happened.
    ///
    /// # Errors
    /// [`InProgress`](crate::ErrorKind::InProgress): the call runs; nothing was removed. Or the store
    /// cannot be used, and it is unknown whether the record is removed.
    ///
    /// # Cancel safety
    /// The record may or may not be removed. In a transaction it stands and falls with that.
    pub async fn forget(&self, mut store: impl Asked) -> Result<bool, Error> {
        let id = self.record_id(store.namespace());
        let removed = store.remove(id).await;
        removed.map_err(|error| self.operation.name(error, &self.identity, id))
    }

    /// Records the outcome of a call that did not come to an end, and whose effect happened: later
    /// calls with its key and payload are answered with it. `outcome` is what the function would have
    /// answered; an `Err` counts where the operation records it (`record_err`).
    ///
    /// It is the decision of somebody who has found out that the effect happened; the opposite one is
    /// [`forget`](Self::forget). A call that was only slow, and comes to its end afterwards, is told
    /// that it lost its reservation. Resolving twice with one outcome is the same as once: outcomes are
    /// compared as they are encoded. The outcome is kept as long as one that is recorded now; where the
    /// retention is known at run time only, for ever.
    ///
    /// # Errors
    /// [`NotAbandoned`](crate::ErrorKind::NotAbandoned): nothing is recorded under the key, or another
    /// outcome is. [`InProgress`](crate::ErrorKind::InProgress): the call runs, or its lease has not
    /// ended. [`OutcomeNotRecordable`](crate::ErrorKind::OutcomeNotRecordable) and
    /// [`OutcomeTooLarge`](crate::ErrorKind::OutcomeTooLarge), as for a call. Nothing was changed then.
    /// Or the store cannot be used, and it is unknown whether the outcome is recorded: resolve again.
    ///
    /// # Cancel safety
    /// The outcome may or may not be recorded. In a transaction it stands and falls with that.
    pub async fn resolve(&self, store: impl Asked, outcome: &Result<T, E>) -> Result<(), Error> {
        let (codec, schema) = (self.operation.codec_id(), self.operation.schema_version());
        let encoded = self.contract.encode(codec, schema, outcome);
        self.resolve_as(
            store,
            encoded.and_then(|outcome| self.fitting(outcome)),
            false,
        )
        .await
    }

    /// The same where it is known that the effect happened, and not what the outcome was: later calls
    /// are refused with [`OutcomeGone`](crate::ErrorKind::OutcomeGone), the effect done. A call that is
    /// completed already stays as it is.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    ///
    /// # Cancel safety
    /// As [`resolve`](Self::resolve).
    pub async fn resolve_without_outcome(&self, store: impl Asked) -> Result<(), Error> {
        self.resolve_as(store, Ok(outcome::tombstone()), true).await
    }

    async fn resolve_as(
        &self,
        mut store: impl Asked,
        outcome: Result<Bytes, Error>,
        is_bare: bool,
    ) -> Result<(), Error> {
        let id = self.record_id(store.namespace());
        let named = |error: Error| self.operation.name(error, &self.identity, id);
        let resolution = Resolution {
            outcome: outcome.map_err(named)?,
            retention: self.operation.retention(),
            is_bare,
        };
        store.resolve(id, resolution).await.map_err(named)
    }

    fn fitting(&self, outcome: Bytes) -> Result<Bytes, Error> {
        let (bytes, most) = (
            outcome::payload_bytes(&outcome),
            self.operation.most_bytes(),
        );
        if bytes > most {
            let detail = format!("it has {bytes} bytes, at most {most} are recorded");
            return Err(Error::new(ErrorKind::OutcomeTooLarge).detail(detail));
        }
        Ok(outcome)
    }
}

impl<T, E> fmt::Debug for CallRef<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallRef")
            .field("scope", &self.scope())
            .field("record_id", &self.record_id(""))
            .finish_non_exhaustive()
    }
}
