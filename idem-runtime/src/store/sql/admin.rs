use bytes::Bytes;
use sqlx::Pool;

use super::dialect::{Dialect, classify};
use super::handle::Records;
use crate::clock::Moment;
use crate::error::{Effect, Error, ErrorKind};
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;
use crate::outcome;

/// A completed record, as it stands in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completed {
    /// The payload's digest.
    pub fingerprint: Fingerprint,
    /// The outcome's envelope; a tombstone's if it is gone and the key still known.
    pub outcome: Bytes,
    /// When it was recorded, by the database's clock.
    pub recorded_at: Option<Moment>,
}

impl Records {
    /// The completed record of `id`, without running anything. `None`: there is none, its time is
    /// over, or its call is still running in a transaction that nobody else can see into.
    ///
    /// # Errors
    /// The database cannot be used.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lookup<D: Dialect>(
        &self,
        pool: &Pool<D>,
        id: RecordId,
    ) -> Result<Option<Completed>, Error> {
        let mut conn = pool.acquire().await.map_err(classify::<D>)?;
        let row = D::peek(&mut conn, self.statements::<D>(), id).await;
        let row = row.map_err(classify::<D>)?;
        Ok(row.filter(|row| !row.is_over).and_then(|row| {
            let (fingerprint, recorded_at, is_gone) =
                (row.fingerprint, row.recorded_at, row.is_gone);
            let kept = |outcome| {
                if is_gone {
                    outcome::tombstone()
                } else {
                    outcome
                }
            };
            row.outcome.map(kept).map(|outcome| Completed {
                fingerprint,
                outcome,
                recorded_at,
            })
        }))
    }

    /// Removes a completed record: the next call with its key runs. `false`: there was none, or its
    /// time is over.
    ///
    /// # Errors
    /// The database cannot be used. MySQL and MariaDB: [`ErrorKind::InProgress`] while a transaction that
    /// has replayed the call is open.
    ///
    /// # Cancel safety
    /// It may or may not be removed.
    pub async fn forget<D: Dialect>(&self, pool: &Pool<D>, id: RecordId) -> Result<bool, Error> {
        let mut conn = pool.acquire().await.map_err(classify::<D>)?;
        let gone = D::forget(&mut conn, self.statements::<D>(), id).await;
        gone.map(|rows| rows > 0).map_err(held_or_failed::<D>)
    }

    /// Removes records whose time is over, and the outcomes that are over of those whose keys are
    /// still known (`tombstone`): of at most `limit` rows, in two short transactions. Says how many.
    /// Rows that are locked, and rows without outcome, are left. Call it until it says fewer than
    /// `limit`. Answers never depend on it.
    ///
    /// # Errors
    /// The database cannot be used; what it removed before stays removed.
    ///
    /// # Cancel safety
    /// Safe to stop at any time.
    pub async fn purge<D: Dialect>(&self, pool: &Pool<D>, limit: u32) -> Result<u64, Error> {
        let mut conn = pool.acquire().await.map_err(classify::<D>)?;
        let (statements, limit) = (self.statements::<D>(), i64::from(limit));
        let gone = D::purge(&mut conn, statements, limit).await;
        let gone = gone.map_err(classify::<D>)?;
        let rest = limit.saturating_sub(i64::try_from(gone).unwrap_or(i64::MAX));
        if rest <= 0 {
            return Ok(gone);
        }
        let buried = D::bury(&mut conn, statements, rest).await;
        Ok(gone + buried.map_err(classify::<D>)?)
    }
}

/// An error of a statement that forgets or resolves.
pub(crate) fn held_or_failed<D: Dialect>(error: sqlx::Error) -> Error {
    if !D::is_held(&error) {
        return classify::<D>(error);
    }
    Error::new(ErrorKind::InProgress)
        .detail("an open transaction has run or replayed the call; nothing was changed")
        .effect_is(Effect::None)
        .caused_by(error)
}
