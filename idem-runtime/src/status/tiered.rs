//! Behind a front: the database is asked, and the front forgets as well.

use bytes::Bytes;

use super::ask::Resolution;
use super::sql::{
    look_inside, look_outside, remove_inside, remove_outside, resolve_inside, resolve_outside,
};
use super::{Asked, Status};
use crate::error::Error;
use crate::key::RecordId;
use crate::store::sql::{Dialect, OwnPool as _};
use crate::store::tiered::{Front, OverPool, OverTx};

impl<D: Dialect, F: Front> Asked for OverPool<'_, D, F> {
    fn namespace(&self) -> &str {
        self.records().namespace_str()
    }

    async fn look(&mut self, id: RecordId) -> Result<Status<Bytes>, Error> {
        look_outside(self.pool(), self.records(), id).await
    }

    async fn remove(&mut self, id: RecordId) -> Result<bool, Error> {
        let removed = remove_outside(self.pool(), self.records(), id).await;
        self.tier().remove(id).await;
        removed
    }

    /// The front holds nothing of a call without an outcome.
    async fn resolve(&mut self, id: RecordId, resolution: Resolution) -> Result<(), Error> {
        resolve_outside(self.pool(), self.records(), id, resolution).await
    }
}

/// A record that is forgotten in a transaction is gone with its commit. The front keeps copies out
/// for [`BARRIER`](crate::store::tiered::BARRIER); where the commit may come later than that, note it
/// ([`OverTx::noting`]), or call [`Tier::remove`](crate::store::tiered::Tier::remove) after it.
impl<D: Dialect, F: Front> Asked for OverTx<'_, '_, '_, D, F> {
    fn namespace(&self) -> &str {
        self.tier.records.namespace_str()
    }

    async fn look(&mut self, id: RecordId) -> Result<Status<Bytes>, Error> {
        look_inside::<D>(self.tx, &self.tier.records, id).await
    }

    async fn remove(&mut self, id: RecordId) -> Result<bool, Error> {
        let removed = remove_inside::<D>(self.tx, &self.tier.records, id).await;
        self.tier.remove(id).await;
        if let Some(after) = self.after {
            after.note().forgotten.push(id);
        }
        removed
    }

    async fn resolve(&mut self, id: RecordId, resolution: Resolution) -> Result<(), Error> {
        resolve_inside::<D>(self.tx, &self.tier.records, id, &resolution).await
    }
}
