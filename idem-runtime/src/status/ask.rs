use std::future::Future;

use bytes::Bytes;

use super::Status;
use crate::error::{Effect, Error, ErrorKind};
use crate::key::RecordId;
use crate::store::Store;

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
}

/// Refuses to forget what is running.
pub(super) fn in_nobodys_hands(status: Status<Bytes>) -> Result<(), Error> {
    match status {
        Status::InProgress(holder) => {
            let error = Error::new(ErrorKind::InProgress)
                .detail("a record is not forgotten while its call runs")
                .effect_is(Effect::None);
            Err(match holder.free_in {
                Some(free_in) => error.after(free_in),
                None => error,
            })
        }
        _ => Ok(()),
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
