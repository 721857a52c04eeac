//! What a person does with sagas in flight: finds them, lets them be tried again, decides for them.

use bytes::Bytes;
use sqlx::Pool;

use super::claim::{failed, transaction};
use super::error::kept_text;
use super::filter::{SagaFilter, SagaSummary};
use super::list::base;
use super::sql::{SagaDialect, SagaTable};
use super::state::{Rest, SagaState, StepRow, StepState};
use super::status::complete;
use crate::error::Error;
use crate::key::RecordId;
use crate::outcome::{self, CodecId, Outcome};

/// How many sagas one transaction lets be tried again.
const PAGE: u32 = 200;

/// What a person has found out about the stuck step.
enum Decision {
    Done(Bytes),
    Undone,
}

impl SagaTable {
    /// At most `limit` sagas that meet the filter, of all definitions, in the order of their ids; the next
    /// page is after the id of the last one.
    ///
    /// ```
    /// # #[cfg(feature = "postgres")]
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), idem_runtime::Error> {
    /// use idem_runtime::steps::{SagaFilter, SagaTable};
    ///
    /// let (table, filter) = (SagaTable::default(), SagaFilter::stuck().name("order.place"));
    /// let mut after = None;
    /// loop {
    ///     let page = table.list(&pool, &filter, after, 100).await?;
    ///     let Some(last) = page.last() else { break };
    ///     after = Some(last.id);
    ///     for saga in &page {
    ///         println!("{} {:?} {:?}: {:?}", saga.id, saga.step, saga.cause, saga.error);
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The database cannot be used.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list<D: SagaDialect>(
        &self,
        pool: &Pool<D>,
        filter: &SagaFilter,
        after: Option<RecordId>,
        limit: u32,
    ) -> Result<Vec<SagaSummary>, Error> {
        let after = after.unwrap_or(RecordId::from_bytes([0; 16]));
        let list = async {
            let mut conn = pool.acquire().await?;
            D::list_sagas(
                &mut conn,
                self.texts::<D>(),
                filter,
                after,
                i64::from(limit),
            )
            .await
        };
        list.await.map_err(failed::<D>)
    }

    /// How many sagas meet the filter.
    ///
    /// # Errors
    /// The database cannot be used.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn count<D: SagaDialect>(
        &self,
        pool: &Pool<D>,
        filter: &SagaFilter,
    ) -> Result<u64, Error> {
        let count = async {
            let mut conn = pool.acquire().await?;
            D::count_sagas(&mut conn, self.texts::<D>(), filter).await
        };
        let count = count.await.map_err(failed::<D>)?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Lets the stuck saga with this id be tried again: it is due at once, and its attempts are counted
    /// anew; how many were made before is kept. `false`: it is not stuck.
    ///
    /// # Errors
    /// The database cannot be used.
    ///
    /// # Cancel safety
    /// It may be done.
    pub async fn retry_stuck<D: SagaDialect>(
        &self,
        pool: &Pool<D>,
        id: RecordId,
    ) -> Result<bool, Error> {
        Ok(self.retry(pool, &[id]).await? == 1)
    }

    /// Lets all stuck sagas that meet the filter be tried again, as after an outage of the other side;
    /// says how many. They are due at once, and workers take as many at a time as they may.
    ///
    /// # Errors
    /// The database cannot be used; a part may be done.
    ///
    /// # Cancel safety
    /// A part may be done.
    pub async fn retry_all_stuck<D: SagaDialect>(
        &self,
        pool: &Pool<D>,
        filter: &SagaFilter,
    ) -> Result<u64, Error> {
        let filter = filter.clone().rest(Rest::Stuck);
        let (mut after, mut all) = (None, 0);
        loop {
            let page = self.list(pool, &filter, after, PAGE).await?;
            let ids: Vec<_> = page.iter().map(|saga| saga.id).collect();
            let Some(last) = ids.last() else {
                return Ok(all);
            };
            after = Some(*last);
            all += self.retry(pool, &ids).await?;
        }
    }

    async fn retry<D: SagaDialect>(&self, pool: &Pool<D>, ids: &[RecordId]) -> Result<u64, Error> {
        let texts = self.texts::<D>();
        let retry = async {
            let (mut tx, mut were_stuck) = (transaction(pool).await?, 0);
            for id in ids {
                if D::unstick_saga(&mut tx, texts, *id).await? == 1 {
                    D::recount_attempts(&mut tx, texts, *id).await?;
                    were_stuck += 1;
                }
            }
            tx.commit().await?;
            Ok(were_stuck)
        };
        retry.await.map_err(failed::<D>)
    }

    /// As [`Saga::resolve_done`](super::Saga::resolve_done), for the saga with this id, without its
    /// definition.
    ///
    /// # Errors
    /// The database cannot be used, or the result cannot be recorded.
    ///
    /// # Cancel safety
    /// It may be done.
    pub async fn resolve_done<D: SagaDialect, R: Outcome + Sync>(
        &self,
        pool: &Pool<D>,
        id: RecordId,
        step: &str,
        result: &R,
        note: &str,
    ) -> Result<bool, Error> {
        let result = outcome::encode_ok(result, CodecId::Json, 0, None)?;
        let note = format!("done by hand: {note}");
        self.resolve(pool, id, step, &note, Decision::Done(result))
            .await
    }

    /// As [`Saga::resolve_undone`](super::Saga::resolve_undone), for the saga with this id, without its
    /// definition.
    ///
    /// # Errors
    /// The database cannot be used.
    ///
    /// # Cancel safety
    /// It may be done.
    pub async fn resolve_undone<D: SagaDialect>(
        &self,
        pool: &Pool<D>,
        id: RecordId,
        step: &str,
        note: &str,
    ) -> Result<bool, Error> {
        let note = format!("undone by hand: {note}");
        self.resolve(pool, id, step, &note, Decision::Undone).await
    }

    async fn resolve<D: SagaDialect>(
        &self,
        pool: &Pool<D>,
        id: RecordId,
        step: &str,
        note: &str,
        decision: Decision,
    ) -> Result<bool, Error> {
        let texts = self.texts::<D>();
        let resolve = async {
            let mut tx = transaction(pool).await?;
            let saga = D::read_saga(&mut tx, texts, id, true).await?;
            let stuck = saga.filter(|saga| saga.rest == Some(Rest::Stuck));
            let rows = match &stuck {
                Some(saga) => complete(&saga.steps, D::read_steps(&mut tx, texts, id).await?),
                None => Vec::new(),
            };
            let decided = stuck.and_then(|saga| decide(saga.state, rows, step, note, decision));
            let Some(row) = decided else {
                tx.rollback().await?;
                return Ok(false);
            };
            D::write_step(&mut tx, texts, id, &row).await?;
            D::unstick_saga(&mut tx, texts, id).await?;
            tx.commit().await?;
            Ok(true)
        };
        resolve.await.map_err(failed::<D>)
    }
}

/// The row of the step that a stuck saga is at, as it is decided; `None`: it is not at this step.
fn decide(
    state: SagaState,
    rows: Vec<StepRow>,
    step: &str,
    note: &str,
    decision: Decision,
) -> Option<StepRow> {
    let mut rows = rows.into_iter();
    let mut row = match decision {
        Decision::Done(_) if state == SagaState::Running => {
            rows.find(|row| row.state != StepState::Done)
        }
        Decision::Undone if state == SagaState::Compensating => {
            rows.find(|row| row.state == StepState::CompensationFailed)
        }
        Decision::Done(_) | Decision::Undone => None,
    }
    .filter(|row| base(&row.name) == base(step))?;
    match decision {
        Decision::Done(result) => {
            row.state = StepState::Done;
            row.result = Some(result);
        }
        Decision::Undone => row.state = StepState::Compensated,
    }
    let before = row.error.take().unwrap_or_default();
    row.error = Some(kept_text(format!("{before} ({note})").trim_start()));
    Some(row)
}
