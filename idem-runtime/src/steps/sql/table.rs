//! Where sagas are kept.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sqlx::Pool;

use super::{SagaDialect, Texts};
use crate::error::Error;
use crate::key::RecordId;
use crate::steps::claim::{millis, saga_id};
use crate::steps::saga::key_text;
use crate::steps::status::SagaStatus;
use crate::store::sql::schema::{self, Schema};
use crate::store::sql::{Migration, checked_own_table, classify};

/// Where sagas are kept: `idem_saga` and `idem_saga_step`, as the connection's search path finds them,
/// or another pair.
#[derive(Clone)]
pub struct SagaTable {
    name: Arc<str>,
    texts: Arc<[OnceLock<Texts>; 3]>,
}

impl Default for SagaTable {
    fn default() -> Self {
        Self {
            name: "idem_saga".into(),
            texts: Arc::default(),
        }
    }
}

impl SagaTable {
    /// Another table, `name` or `schema.name`; its steps are in `name_step`.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`](crate::ErrorKind::Schema): no plain name (ASCII letters, digits and
    /// `_`).
    pub fn named(name: &str) -> Result<Self, Error> {
        Ok(Self {
            name: checked_own_table(name)?.into(),
            texts: Arc::default(),
        })
    }

    /// The schema's steps, for a migration tool of your own.
    #[must_use]
    pub fn migrations<D: SagaDialect>(&self) -> Vec<Migration> {
        self.schema::<D>().migrations::<D>()
    }

    /// Creates or updates the tables. Safe to run in many processes at once.
    ///
    /// # Errors
    /// The database cannot be used, or a table of that name is there that is not ours.
    pub async fn migrate<D: SagaDialect>(&self, pool: &Pool<D>) -> Result<(), Error> {
        schema::migrate(pool, self.schema::<D>()).await
    }

    /// Checks the schema: the version, the columns, the primary key.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`](crate::ErrorKind::Schema) with what is wrong; or the database cannot be
    /// used.
    pub async fn check<D: SagaDialect>(&self, pool: &Pool<D>) -> Result<(), Error> {
        schema::check(pool, self.schema::<D>()).await
    }

    /// Where the saga `name` with this key stands; `None` if nothing is known of it. Runs nothing and
    /// needs no definition.
    ///
    /// # Errors
    /// The database cannot be used, or the key is none.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn status<D: SagaDialect>(
        &self,
        pool: &Pool<D>,
        name: &str,
        key: &str,
    ) -> Result<Option<SagaStatus>, Error> {
        self.status_of(pool, saga_id(name, &key_text(key)?)).await
    }

    /// Where the saga with this id stands, likewise.
    ///
    /// # Errors
    /// The database cannot be used.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn status_of<D: SagaDialect>(
        &self,
        pool: &Pool<D>,
        id: RecordId,
    ) -> Result<Option<SagaStatus>, Error> {
        let texts = self.texts::<D>();
        let mut conn = pool.acquire().await.map_err(classify::<D>)?;
        let read = D::read_saga(&mut conn, texts, id, false).await;
        let Some(saga) = read.map_err(classify::<D>)? else {
            return Ok(None);
        };
        let steps = D::read_steps(&mut conn, texts, id).await;
        Ok(Some(SagaStatus::of(
            id,
            saga,
            steps.map_err(classify::<D>)?,
        )))
    }

    /// Removes at most `limit` sagas, with their steps, that ended at least `over_for` ago; says how
    /// many. What is not finished, and what is stuck, is never removed. A key whose saga is removed is
    /// new again: keep sagas for longer than anybody repeats them.
    ///
    /// # Errors
    /// The database cannot be used.
    ///
    /// # Cancel safety
    /// Safe to stop at any time.
    pub async fn purge<D: SagaDialect>(
        &self,
        pool: &Pool<D>,
        over_for: Duration,
        limit: u32,
    ) -> Result<u64, Error> {
        let mut conn = pool.acquire().await.map_err(classify::<D>)?;
        let texts = self.texts::<D>();
        let gone = D::purge_sagas(&mut conn, texts, millis(over_for), i64::from(limit)).await;
        gone.map_err(classify::<D>)
    }

    fn schema<D: SagaDialect>(&self) -> Schema<'_> {
        Schema::new(D::saga_shape(), &self.name)
    }

    /// Where equal calls in one process line up.
    pub(in crate::steps) fn lane(&self, call: &str) -> Arc<str> {
        format!("{}/{call}", self.name).into()
    }

    pub(in crate::steps) fn texts<D: SagaDialect>(&self) -> &Texts {
        self.texts[D::INDEX].get_or_init(|| D::saga_texts(&self.name))
    }
}

impl fmt::Debug for SagaTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SagaTable").field(&self.name).finish()
    }
}
