use std::fmt;

use super::{Asked, Status};
use crate::engine::Contract;
use crate::error::Error;
use crate::identity::Identity;
use crate::key::{KeyBuilder, RecordId};
use crate::operation::Operation;

/// One call of an annotated function, known by its key: asks for its record, or forgets it. Made by
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
}

impl<T, E> fmt::Debug for CallRef<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallRef")
            .field("scope", &self.scope())
            .field("record_id", &self.record_id(""))
            .finish_non_exhaustive()
    }
}
