use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use super::claim::failed;
use super::error::SagaError;
use super::saga::Saga;
use super::sql::SagaDialect;
use crate::engine::Backoff;
use crate::error::Error;
use crate::key::RecordId;
use crate::outcome::Outcome;

/// Runs on what other processes have left: sagas whose lease is over, and those whose next attempt is
/// due. Any number of workers, in any number of processes, share the work.
pub struct Worker<D: SagaDialect, I, C = ()> {
    saga: Saga<D, I, C>,
    batch: u32,
}

/// A saga that a worker has run on.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "it may be stuck, or begun under another list of steps"]
pub struct Resumed {
    /// Its key.
    pub key: String,
    /// What came of it; `Ok`: completed.
    pub outcome: Result<(), SagaError>,
}

impl<D, I, C> Worker<D, I, C>
where
    D: SagaDialect,
    I: Outcome + Send + Sync + 'static,
    C: Clone + Send + Sync + 'static,
{
    pub(super) fn new(saga: Saga<D, I, C>) -> Self {
        Self { saga, batch: 20 }
    }

    /// How many sagas are looked for at a time: 20 unless it is told otherwise.
    #[must_use]
    pub fn batch(mut self, sagas: u32) -> Self {
        self.batch = sagas;
        self
    }

    /// Runs on what is due, one after the other, the longest due first, and says what came of each.
    /// What another worker has taken meanwhile is left out.
    ///
    /// # Errors
    /// The database cannot be asked for what is due.
    ///
    /// # Cancel safety
    /// As [`Saga::start`]: the saga in hand is left until its lease is over.
    pub async fn run_once(&self) -> Result<Vec<Resumed>, Error> {
        let mut resumed = Vec::new();
        for (id, key) in self.due().await? {
            resumed.extend(self.resume(id, key).await);
        }
        Ok(resumed)
    }

    /// Runs on what is due, and looks again after `pause` (shortened by up to half at random) where
    /// there was nothing, until `stop` is ready; the saga in hand then comes to its end first. What
    /// came of each goes to the log.
    ///
    /// # Cancel safety
    /// As [`run_once`](Self::run_once).
    pub async fn run_until(&self, stop: impl Future<Output = ()>, pause: Duration) {
        let mut stop = pin!(stop);
        loop {
            let due = match self.due().await {
                Ok(due) => due,
                Err(error) => {
                    tracing::warn!(%error, "sagas cannot be looked for");
                    Vec::new()
                }
            };
            let mut found = false;
            for (id, key) in due {
                let resumed = self.resume(id, key).await;
                // A database that does not answer is not asked again at once.
                found |= resumed.is_some_and(|one| !matches!(one.outcome, Err(SagaError::Idem(_))));
                let stopped = tokio::select! {
                    biased;
                    () = &mut stop => true,
                    () = std::future::ready(()) => false,
                };
                if stopped {
                    return;
                }
            }
            let pause = if found {
                Duration::ZERO
            } else {
                let mut pauses = Backoff::new(Some(Duration::MAX), pause, pause);
                pauses.next().unwrap_or(pause)
            };
            tokio::select! {
                biased;
                () = &mut stop => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn due(&self) -> Result<Vec<(RecordId, String)>, Error> {
        let definition = &self.saga.definition;
        let texts = definition.table.texts::<D>();
        let look = async {
            let mut conn = definition.pool.acquire().await?;
            D::due_sagas(&mut conn, texts, definition.name, i64::from(self.batch)).await
        };
        look.await.map_err(failed::<D>)
    }

    async fn resume(&self, id: RecordId, key: String) -> Option<Resumed> {
        let outcome = self.saga.resume(id).await?.map(|_results| ());
        match &outcome {
            Ok(()) => tracing::info!(saga = %id, "a saga was run on and has completed"),
            Err(SagaError::Compensated(_)) => {
                tracing::info!(saga = %id, "a saga was run on and is compensated");
            }
            Err(error) => tracing::warn!(saga = %id, %error, "a saga was run on and has not ended"),
        }
        Some(Resumed { key, outcome })
    }
}

impl<D: SagaDialect, I, C> fmt::Debug for Worker<D, I, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("saga", &self.saga)
            .field("batch", &self.batch)
            .finish()
    }
}
