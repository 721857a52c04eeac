//! How a person names a saga.

use super::claim::saga_id;
use super::saga::key_text;
use crate::error::Error;
use crate::key::RecordId;

/// A saga of a definition: by its key, or by its id as logs and [lists](super::SagaTable::list) give it.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum SagaRef<'a> {
    /// As it was started.
    Key(&'a str),
    /// [`SagaSummary::id`](super::SagaSummary::id), [`SagaStatus::id`](super::SagaStatus::id).
    Id(RecordId),
}

impl SagaRef<'_> {
    pub(super) fn id(self, name: &str) -> Result<RecordId, Error> {
        match self {
            Self::Key(key) => Ok(saga_id(name, &key_text(key)?)),
            Self::Id(id) => Ok(id),
        }
    }
}

impl<'a> From<&'a str> for SagaRef<'a> {
    fn from(key: &'a str) -> Self {
        Self::Key(key)
    }
}

impl<'a> From<&'a String> for SagaRef<'a> {
    fn from(key: &'a String) -> Self {
        Self::Key(key)
    }
}

impl From<RecordId> for SagaRef<'_> {
    fn from(id: RecordId) -> Self {
        Self::Id(id)
    }
}
