use std::future::Future;

use crate::error::Error;
use crate::key::RecordId;
use crate::store::{Kept, Until};

/// What stands in front of a store and holds copies of completed records.
///
/// It may forget anything at any time. It must not answer from an entry past its end, nor give one
/// record's outcome for another's. A handle is cheap to clone and all clones are the same front.
pub trait Front: Clone + Send + Sync + 'static {
    /// Whether asking it takes time and may fail: it is then asked under a time limit and behind a
    /// breaker.
    const REMOTE: bool = true;

    /// The copy, if there is one.
    ///
    /// # Errors
    /// It cannot be asked: the caller goes on without it.
    ///
    /// # Cancel safety
    /// Changes nothing.
    fn get(&self, id: RecordId) -> impl Future<Output = Result<Option<Kept>, Error>> + Send;

    /// The copy together with its end, to be copied on into a nearer front.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Cancel safety
    /// Changes nothing.
    fn get_to_copy(
        &self,
        id: RecordId,
    ) -> impl Future<Output = Result<Option<(Kept, Until)>, Error>> + Send;

    /// Holds a copy until then at the latest, unless it was asked for [`LATEST`](super::LATEST) ago
    /// or earlier ([`Until::asked_ago`]).
    ///
    /// # Errors
    /// It cannot be asked; unknown whether it holds the copy.
    ///
    /// # Cancel safety
    /// It may hold the copy or not.
    fn put(
        &self,
        id: RecordId,
        kept: &Kept,
        until: Until,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Drops the copy, and refuses another one for [`BARRIER`](super::BARRIER): a record that was
    /// read just before it was removed may be on its way here.
    ///
    /// # Errors
    /// It cannot be asked; unknown whether it still holds a copy.
    ///
    /// # Cancel safety
    /// The copy may be gone or not.
    fn remove(&self, id: RecordId) -> impl Future<Output = Result<(), Error>> + Send;
}
