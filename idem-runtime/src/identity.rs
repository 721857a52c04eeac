//! Which record a call has: computed in one place, for the call itself and for whoever asks for it.

use crate::error::Error;
use crate::key::{Key, KeyBuilder, RecordId, Scope};

/// Operation, type arguments and key of one call.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    scope: &'static str,
    types: Vec<&'static str>,
    key: Key,
}

impl Identity {
    /// `Here` is the type of an item inside the function, `types` the names of its type arguments.
    ///
    /// # Errors
    /// An empty key part, a key that is too long.
    pub(crate) fn new<Here>(
        scope: &'static Scope,
        _here: &Here,
        types: &[&'static str],
        key: KeyBuilder,
    ) -> Result<Self, Error> {
        let name = scope.resolve::<Here>();
        let key = key.finish().map_err(|error| error.in_operation(name))?;
        // A fixed name is the whole identity: it must not change when a type argument is renamed.
        let types = if scope.is_fixed() { &[] } else { types };
        Ok(Self {
            scope: name,
            types: types.to_vec(),
            key,
        })
    }

    pub(crate) fn scope(&self) -> &'static str {
        self.scope
    }

    pub(crate) fn key(&self) -> &str {
        self.key.as_str()
    }

    pub(crate) fn record_id(&self, namespace: &str) -> RecordId {
        RecordId::new(namespace, self.scope, &self.types, self.key.as_str())
    }
}
