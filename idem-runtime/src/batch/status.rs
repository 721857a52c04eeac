//! How a batch stands, and forgetting it.

use bytes::Bytes;

use super::{ALL, Batch, DONE, LIST, Noted};
use crate::error::Error;
use crate::key::RecordId;
use crate::operation::Operation;
use crate::outcome::decode_ok;
use crate::status::{Asked, Status};

/// How a batch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum BatchStatus {
    /// Nothing is known under its key.
    Absent,
    /// [`Batch::each`]: its list is recorded. Items may be running, or wait for the batch to be sent
    /// again.
    Begun,
    /// [`Batch::all`] or [`Batch::all_in`] runs in an open transaction.
    InProgress,
    /// It was committed unfinished, which MySQL and MariaDB cannot refuse.
    Abandoned,
    /// All items are done, and the batch is answered from its record.
    Finished,
}

/// What the record of a list says beside its fingerprint.
const LISTED: &str = "list";

/// The record of a list with this digest.
pub(super) fn listed(digest: &str) -> Noted {
    Noted::from([(LISTED.to_owned(), digest.to_owned())])
}

impl Batch {
    /// How the batch stands, in whichever mode it was sent. The store is the batch's: for
    /// [`each`](Self::each) the one it was given, for the other two the pool, the transaction, or either
    /// with the [`records`](Self::records).
    ///
    /// # Errors
    /// The store cannot be used, or the batch has no valid key.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn status(&self, mut store: impl Asked) -> Result<BatchStatus, Error> {
        match store.look(self.id(&store, &ALL, None)?).await? {
            Status::Absent => {}
            Status::InProgress(_) => return Ok(BatchStatus::InProgress),
            Status::Abandoned(_) => return Ok(BatchStatus::Abandoned),
            Status::Completed(_) | Status::OutcomeGone(_) => return Ok(BatchStatus::Finished),
        }
        match store.look(self.id(&store, &LIST, None)?).await? {
            Status::Completed(list) => {
                let done = self.done(&store, &list.outcome)?;
                Ok(match store.look(done).await? {
                    Status::Completed(_) => BatchStatus::Finished,
                    _ => BatchStatus::Begun,
                })
            }
            Status::Absent => Ok(BatchStatus::Absent),
            _ => Ok(BatchStatus::Begun),
        }
    }

    /// Forgets the batch, and not its items: sent again, with this list or another one, items that are
    /// done are replayed. `false`: nothing was known.
    ///
    /// # Errors
    /// [`InProgress`](crate::ErrorKind::InProgress): it runs in an open transaction. Or the store cannot
    /// be used; then some of its records may be removed. Forget it again.
    ///
    /// # Cancel safety
    /// As after an error.
    pub async fn forget(&self, mut store: impl Asked) -> Result<bool, Error> {
        let mut known = store.remove(self.id(&store, &ALL, None)?).await?;
        let list = self.id(&store, &LIST, None)?;
        // The outcome first: it is found by what the list's record says.
        if let Status::Completed(found) = store.look(list).await? {
            known |= store.remove(self.done(&store, &found.outcome)?).await?;
        }
        known |= store.remove(list).await?;
        Ok(known)
    }

    fn id(
        &self,
        store: &impl Asked,
        operation: &'static Operation,
        digest: Option<&str>,
    ) -> Result<RecordId, Error> {
        let mut call = self.call(operation, &[], digest)?;
        call.enter_namespace(store.namespace());
        Ok(call.id())
    }

    fn done(&self, store: &impl Asked, list: &Bytes) -> Result<RecordId, Error> {
        let list: Noted = decode_ok(list)?;
        self.id(store, &DONE, list.get(LISTED).map(String::as_str))
    }
}
