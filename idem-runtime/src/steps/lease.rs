//! The lease of a saga that is run, and its renewal.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{Pool, SqlStr};
use tokio::time::Instant;

use super::claim::millis;
use super::sql::{Held, SagaDialect};
use crate::engine::run_to_end;

/// The saga has another owner, or may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lost;

/// What happens when a renewal does not come through in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InDoubt {
    /// The action ends: nothing else would keep it from having its effect beside a new owner's.
    Stop,
    /// It goes on: its transaction does not commit unless the saga is still held.
    GoOn,
}

/// A lease, and how it is renewed.
#[derive(Clone, Debug)]
pub(super) struct Lease<D: SagaDialect> {
    /// The definition's name, for the log.
    pub(super) name: Arc<str>,
    pub(super) pool: Pool<D>,
    pub(super) renew: SqlStr,
    pub(super) held: Held,
    pub(super) time: Duration,
}

impl<D: SagaDialect> Lease<D> {
    /// Runs `action` and renews the lease beside it. `since`: when the last request that extended it
    /// was sent.
    pub(super) async fn beside<T>(
        &self,
        since: Instant,
        in_doubt: InDoubt,
        action: impl Future<Output = T>,
    ) -> Result<T, Lost> {
        tokio::select! {
            biased;
            done = action => Ok(done),
            () = self.until_lost(since, in_doubt) => Err(Lost),
        }
    }

    async fn until_lost(&self, since: Instant, in_doubt: InDoubt) {
        if D::ONE_WRITER && in_doubt == InDoubt::GoOn {
            // The action's transaction holds the database: nobody can renew, nobody can take over.
            return std::future::pending().await;
        }
        let interval = self.time / 3;
        let (mut deadline, mut next) = (since + self.time, since + interval);
        loop {
            tokio::time::sleep_until(next).await;
            let now = Instant::now();
            // Woken up too late, as after a blocking body: the database still knows.
            let patience = match deadline.saturating_duration_since(now) {
                Duration::ZERO => interval,
                left => left.min(interval),
            };
            match tokio::time::timeout(patience, self.renew()).await {
                Ok(Ok(true)) => (deadline, next) = (now + self.time, now + interval),
                Ok(Ok(false)) => break,
                Ok(Err(_)) | Err(_) => {
                    let now = Instant::now();
                    if in_doubt == InDoubt::Stop && now >= deadline {
                        break;
                    }
                    next = now + interval / 4;
                }
            }
        }
        tracing::warn!(saga = &*self.name, id = %self.held.id, fence = self.held.fence, "the saga's lease was lost");
    }

    /// Extends the lease; `false`: it has another owner, or none.
    pub(super) async fn renew(&self) -> Result<bool, sqlx::Error> {
        let (pool, sql, held) = (self.pool.clone(), self.renew.clone(), self.held);
        let lease = millis(self.time);
        // To its end: a driver need not survive a statement that is dropped.
        run_to_end(async move {
            let mut conn = pool.acquire().await?;
            let renewed = D::hold_saga(&mut conn, &sql, held, lease).await?;
            Ok(renewed == 1)
        })
        .await
    }
}
