use super::Front;
use super::guard::{Guarded, Limits};
use crate::error::Error;
use crate::key::RecordId;
use crate::store::{Kept, Until};

/// A near front (this process) before a farther one (Redis). What the farther one has is copied into
/// the near one, with the end it has there.
///
/// Each has a breaker of its own: while the farther one is down the near one answers.
#[derive(Clone, Debug)]
pub struct Stack<N, F> {
    near: Guarded<N>,
    far: Guarded<F>,
}

impl<N: Front, F: Front> Stack<N, F> {
    /// With the default limits.
    #[must_use]
    pub fn new(near: N, far: F) -> Self {
        Self::with_limits(near, far, Limits::new())
    }

    /// With other limits, for each of them that is remote.
    #[must_use]
    pub fn with_limits(near: N, far: F, limits: Limits) -> Self {
        Self {
            near: Guarded::new(near, limits),
            far: Guarded::new(far, limits),
        }
    }
}

impl<N: Front, F: Front> Front for Stack<N, F> {
    // Each is guarded here.
    const REMOTE: bool = false;

    async fn get(&self, id: RecordId) -> Result<Option<Kept>, Error> {
        if let Some(kept) = self.near.get(id).await {
            return Ok(Some(kept));
        }
        let Some((kept, until)) = self.far.get_to_copy(id).await else {
            return Ok(None);
        };
        self.near.put(id, &kept, until).await;
        Ok(Some(kept))
    }

    async fn get_to_copy(&self, id: RecordId) -> Result<Option<(Kept, Until)>, Error> {
        match self.near.get_to_copy(id).await {
            Some(found) => Ok(Some(found)),
            None => Ok(self.far.get_to_copy(id).await),
        }
    }

    async fn put(&self, id: RecordId, kept: &Kept, until: Until) -> Result<(), Error> {
        self.near.put(id, kept, until).await;
        self.far.put(id, kept, until).await;
        Ok(())
    }

    /// The farther one first: what is copied from it meanwhile is dropped with the near one.
    async fn remove(&self, id: RecordId) -> Result<(), Error> {
        let far = self.far.remove(id).await;
        let near = self.near.remove(id).await;
        if near && far {
            return Ok(());
        }
        Err(Error::new(crate::ErrorKind::StoreUnavailable)
            .detail("a front could not be reached and may still hold the outcome"))
    }
}
