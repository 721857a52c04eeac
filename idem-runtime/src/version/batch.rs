//! Several rows, all or none.

use std::fmt;

use sqlx::{Connection as _, Encode, Type};

use super::{Updated, Values, VersionDialect, VersionError, VersionedUpdate};
use crate::error::{Effect, Retry};
use crate::retry::Retryable;
use crate::store::sql::guarded::failed;

/// Why none of several rows was changed.
#[derive(Debug)]
#[non_exhaustive]
pub struct BatchError {
    /// Which row it was, counted from 0; `None` when it was none of them (the savepoint).
    pub row: Option<usize>,
    /// What was wrong with it.
    pub error: VersionError,
}

impl<D: VersionDialect, const N: usize> VersionedUpdate<D, N> {
    /// Changes several rows, all or none: `(id, expected version, values)` each, in this order.
    ///
    /// It runs within a savepoint, or in a transaction of its own where there is none: after an
    /// error none of the rows is changed, even if the caller commits. Give the rows in an order
    /// that all callers share, such as that of the ids: then two batches cannot deadlock.
    ///
    /// # Errors
    /// The first row that could not be changed, and why.
    ///
    /// # Cancel safety
    /// The savepoint is rolled back before the connection does anything else.
    pub async fn apply_all<'t, I, V>(
        &self,
        conn: &mut D::Connection,
        rows: impl IntoIterator<Item = (I, i64, V), IntoIter: Send> + Send,
    ) -> Result<Vec<Updated>, BatchError>
    where
        I: Encode<'t, D> + Type<D> + Clone + Send,
        V: Values<'t, D, N> + Send,
    {
        let around = |error| BatchError {
            row: None,
            error: VersionError::Failed(failed::<D>(self.table(), error)),
        };
        let mut nested = conn.begin().await.map_err(around)?;
        let mut done = Vec::new();
        for (row, (id, expected, values)) in rows.into_iter().enumerate() {
            match self.apply(&mut nested, id, expected, values).await {
                Ok(updated) => done.push(updated),
                Err(error) => {
                    // After a deadlock there may be nothing left to roll back to; the first error
                    // is the one that tells.
                    let _ = nested.rollback().await;
                    return Err(BatchError {
                        row: Some(row),
                        error,
                    });
                }
            }
        }
        nested.commit().await.map_err(around)?;
        Ok(done)
    }
}

impl BatchError {
    /// What it means for the rows: the savepoint takes all of them back.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self.row {
            Some(_) => Effect::None,
            None => self.error.effect(),
        }
    }

    /// Whether and how to repeat it.
    #[must_use]
    pub fn retry(&self) -> Retry {
        self.error.retry()
    }
}

impl Retryable for BatchError {
    fn calls_for_retry(&self) -> bool {
        self.error.calls_for_retry()
    }
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row {
            Some(row) => write!(f, "row {row} of the batch: {}", self.error),
            None => self.error.fmt(f),
        }
    }
}

impl std::error::Error for BatchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}
