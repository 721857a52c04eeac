use std::sync::Arc;

use super::Front;
use super::guard::{Guarded, Limits};
use crate::key::RecordId;
use crate::store::filter::Filter;
#[cfg(feature = "_sqlx")]
use crate::store::sql::Records;
use crate::store::{Kept, Until};

/// A front with what it needs to stand before a store. Cheap to clone; all clones share one breaker.
///
/// ```
/// use idem_runtime::store::filter::Filter;
/// use idem_runtime::store::tiered::{MemoryFront, Tier};
///
/// let front = Tier::new(MemoryFront::new(64 << 20)).filter(Filter::new(1_000_000));
/// # let _ = front;
/// ```
#[derive(Clone, Debug)]
pub struct Tier<F> {
    front: Guarded<F>,
    filter: Option<Arc<Filter>>,
    #[cfg(feature = "_sqlx")]
    pub(crate) records: Records,
}

impl<F: Front> Tier<F> {
    /// With the default limits.
    #[must_use]
    pub fn new(front: F) -> Self {
        Self::with_limits(front, Limits::new())
    }

    /// With other limits, if it is remote.
    #[must_use]
    pub fn with_limits(front: F, limits: Limits) -> Self {
        Self {
            front: Guarded::new(front, limits),
            filter: None,
            #[cfg(feature = "_sqlx")]
            records: Records::default(),
        }
    }

    /// Asks the front only about keys that may have been seen here. For operations whose keys are
    /// nearly all new; it costs every call a little and saves the look-ups that find nothing.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = Some(Arc::new(filter));
        self
    }

    /// Records in another table, or under a namespace.
    #[cfg(feature = "_sqlx")]
    #[must_use]
    pub fn records(mut self, records: &Records) -> Self {
        self.records = records.clone();
        self
    }

    /// The front.
    pub fn front(&self) -> &F {
        self.front.front()
    }

    /// Drops the copy of a record that was removed from the store by other means. `false`: the front
    /// did not answer, and may replay the record until its `max_age` is over.
    ///
    /// # Cancel safety
    /// The copy may be gone or not.
    pub async fn remove(&self, id: RecordId) -> bool {
        let gone = self.front.remove(id).await;
        if !gone {
            tracing::warn!(record = %id, "a record was removed and a front could not be told");
        }
        gone
    }

    /// Whether no look-up can find the key, as far as this process knows.
    pub(crate) fn is_new(&self, id: RecordId) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.is_new(id))
    }

    #[inline]
    pub(crate) async fn get(&self, id: RecordId) -> Option<Kept> {
        self.front.get(id).await
    }

    pub(crate) async fn put(&self, id: RecordId, kept: &Kept, until: Until) {
        self.front.put(id, kept, until).await;
    }
}

impl<F: Front> From<F> for Tier<F> {
    fn from(front: F) -> Self {
        Self::new(front)
    }
}
