//! Whether one table name means one table to all calls of a pool.
//!
//! A pool whose sessions are set up for each request (`SET search_path`, `USE`) holds several tables under
//! one name. Which one a call means is known only once it has a connection: such calls must not be
//! answered from each other before that.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use sqlx::{Connection, Pool, SqlStr, Transaction};

use crate::engine::coalesce::Lane;
use crate::engine::finish::run_to_end;
use crate::error::Error;
use crate::key::RecordId;
use crate::store::sql::{Dialect, Records, classify};

type Options<D> = <<D as sqlx::Database>::Connection as Connection>::Options;

/// By the address of the pool's options, which the reference keeps from being used again.
type Known = HashMap<(usize, Arc<str>), (Weak<dyn Any + Send + Sync>, bool)>;

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The table name of one pool.
pub(super) struct Table<D: Dialect> {
    /// All clones of a pool share them; another pool has others.
    options: Arc<Options<D>>,
    name: Arc<str>,
}

impl<D: Dialect> Table<D> {
    pub(super) fn of(pool: &Pool<D>, records: &Records) -> Self {
        Self {
            options: pool.connect_options(),
            name: records.table_name(),
        }
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.options) as usize
    }

    /// `None`: nobody has looked yet.
    pub(super) fn is_one(&self) -> Option<bool> {
        if self.name.contains('.') {
            return Some(true);
        }
        let key = (self.address(), Arc::clone(&self.name));
        known().get(&key).map(|(_, is_one)| *is_one)
    }

    /// Begins a transaction; in the first one of a pool it is found out.
    pub(super) async fn begin(
        &self,
        pool: &Pool<D>,
        statement: Option<SqlStr>,
    ) -> Result<Transaction<'static, D>, Error> {
        if self.is_one().is_some() {
            return super::begin(pool, statement).await;
        }
        let pool = pool.clone();
        let begun = run_to_end(async move {
            let mut tx = D::begin_with(&pool, statement).await?;
            let elsewhere = D::looks_elsewhere(&mut tx, &pool).await?;
            Ok((tx, elsewhere))
        });
        let (tx, elsewhere) = begun.await.map_err(classify::<D>)?;
        self.learn(!elsewhere);
        Ok(tx)
    }

    fn learn(&self, is_one: bool) {
        if !is_one {
            tracing::warn!(
                table = %self.name,
                "sessions of this pool choose their schema themselves: equal calls are not answered \
                 together; name the table with its schema, or set the schema in the connection's options"
            );
        }
        let options: Arc<dyn Any + Send + Sync> = self.options.clone();
        let mut known = known();
        known.retain(|_, (options, _)| options.strong_count() > 0);
        let key = (self.address(), Arc::clone(&self.name));
        known.insert(key, (Arc::downgrade(&options), is_one));
    }

    /// Where a call stands in line: with its equals, or alone.
    pub(super) fn lane(&self, id: RecordId) -> Lane {
        static ALONE: AtomicU64 = AtomicU64::new(0);
        let alone = self.is_one() == Some(false);
        Lane {
            pool: self.address(),
            table: Arc::clone(&self.name),
            id,
            alone: alone.then(|| ALONE.fetch_add(1, Ordering::Relaxed)),
        }
    }
}
