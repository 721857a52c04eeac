//! A transaction or a pool behind a front.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlx::{Pool, Transaction};

use super::{Front, Tier};
use crate::error::Error;
use crate::key::RecordId;
use crate::protocol::Owner;
use crate::store::sql::{Asked, Dialect, Fill, OwnPool, Records};
use crate::store::{Kept, Until};

/// The caller's transaction behind a front.
#[derive(Debug)]
pub struct OverTx<'t, 'a, 'c, D: Dialect, F: Front> {
    pub(crate) tier: &'t Tier<F>,
    pub(crate) tx: &'a mut Transaction<'c, D>,
    pub(crate) after: Option<&'t AfterCommit<F>>,
}

/// A pool behind a front: transactions of the framework's own.
#[derive(Debug)]
pub struct OverPool<'t, D: Dialect, F: Front> {
    tier: &'t Tier<F>,
    pool: &'t Pool<D>,
}

impl<F: Front> Tier<F> {
    /// The caller's transaction behind this front: `store = "self.front.over(tx)"`.
    ///
    /// Repeats are answered from the front without the database. First runs fill it only through an
    /// [`AfterCommit`].
    pub fn over<'t, 'a, 'c, D: Dialect>(
        &'t self,
        tx: &'a mut Transaction<'c, D>,
    ) -> OverTx<'t, 'a, 'c, D, F> {
        OverTx {
            tier: self,
            tx,
            after: None,
        }
    }

    /// Transactions of the framework's own behind this front:
    /// `store = "self.front.pool(&self.pool)"` with `tx = name`.
    pub fn pool<'t, D: Dialect>(&'t self, pool: &'t Pool<D>) -> OverPool<'t, D, F> {
        OverPool { tier: self, pool }
    }

    /// Notes first runs until the caller's transaction is committed.
    pub fn after_commit(&self) -> AfterCommit<F> {
        AfterCommit {
            tier: self.clone(),
            noted: Mutex::default(),
        }
    }

    /// Removes a completed record and its copy: the next call with its key runs. `false`: there was
    /// no record.
    ///
    /// Where the front cannot be told this is logged: it may replay the outcome until its `max_age`
    /// is over.
    ///
    /// # Errors
    /// The database cannot be used.
    ///
    /// # Cancel safety
    /// Dropped midway, the record may be gone and its copy not; forget again.
    pub async fn forget<D: Dialect>(&self, pool: &Pool<D>, id: RecordId) -> Result<bool, Error> {
        let forgotten = self.records.forget(pool, id).await;
        self.remove(id).await;
        forgotten
    }
}

impl<D: Dialect, F: Front> OverPool<'_, D, F> {
    pub(crate) fn tier(&self) -> &Tier<F> {
        self.tier
    }
}

impl<'t, D: Dialect, F: Front> OverTx<'t, '_, '_, D, F> {
    /// Notes a first run, whose outcome is put into the front once it is committed
    /// ([`AfterCommit::committed`]), and a record that is forgotten:
    /// `store = "self.front.over(tx).noting(after)"`.
    #[must_use]
    pub fn noting(mut self, after: &'t AfterCommit<F>) -> Self {
        self.after = Some(after);
        self
    }
}

/// The first runs in one transaction of the caller's, whose outcomes belong into the front once it is
/// committed, and nowhere if it is not.
///
/// A commit that was acknowledged proves nothing about a call in it: its savepoint may have been
/// rolled back, or the database may have ended the transaction after a statement whose error nobody
/// looked at. So [`committed`](Self::committed) reads the records back.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn example(
/// #     front: idem_runtime::store::tiered::Tier<idem_runtime::store::tiered::MemoryFront>,
/// #     pool: sqlx::PgPool,
/// # ) -> Result<(), sqlx::Error> {
/// let after = front.after_commit();
/// let tx = pool.begin().await?;
/// // … calls with store = "front.over(tx).noting(&after)" …
/// tx.commit().await?;
/// after.committed(&pool).await;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "without `committed` the outcomes reach the front only with their first repeats"]
pub struct AfterCommit<F> {
    pub(crate) tier: Tier<F>,
    pub(crate) noted: Mutex<Noted>,
}

/// What a transaction did to records.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// By whom each was completed.
    pub(crate) completed: Vec<(RecordId, Owner)>,
    pub(crate) forgotten: Vec<RecordId>,
}

impl<F> AfterCommit<F> {
    pub(crate) fn note(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Dialect, F: Front> OwnPool for OverPool<'_, D, F> {
    type Db = D;

    fn pool(&self) -> &Pool<D> {
        self.pool
    }

    fn records(&self) -> &Records {
        &self.tier.records
    }

    async fn ask(&self, id: RecordId) -> Asked {
        if self.tier.is_new(id) {
            return Asked::New;
        }
        match self.tier.get(id).await {
            Some(kept) => Asked::Kept(kept),
            None => Asked::Nothing,
        }
    }

    fn fill(&self) -> Option<Arc<dyn Fill>> {
        Some(Arc::new(self.tier.clone()))
    }
}

impl<F: Front> Fill for Tier<F> {
    fn fill<'f>(
        &'f self,
        id: RecordId,
        kept: &'f Kept,
        until: Until,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'f>> {
        Box::pin(self.put(id, kept, until))
    }
}
