//! The caller's transaction behind a front.

use std::sync::PoisonError;

use sqlx::Pool;

use super::behind::from_front;
use super::finish::run_to_end;
use super::transaction::{Found, TxRun, find, replay, settle};
use super::{Access, InTransaction, Settlement, Step};
use crate::error::Error;
use crate::key::RecordId;
use crate::operation::Call;
use crate::protocol::Owner;
use crate::store::Kept;
use crate::store::sql::{Dialect, Records, Row, classify};
use crate::store::tiered::{AfterCommit, Front, OverTx};

impl<D: Dialect, F: Front> Access for OverTx<'_, '_, '_, D, F> {
    type Run = TxRun;
    type Guard = InTransaction<D>;

    fn guard(&mut self) -> &mut D::Connection {
        &mut *self.tx
    }

    async fn reserve(&mut self, mut call: Call) -> Result<Step<TxRun>, Error> {
        let records = &self.tier.records;
        call.enter_namespace(records.namespace_str());
        if !self.tier.is_new(call.id())
            && let Some(kept) = self.tier.get(call.id()).await
        {
            return from_front(call, kept).map(Step::Replay);
        }
        match find::<D>(&mut *self.tx, records, call).await? {
            Found::Run(run) => Ok(Step::Run(run)),
            Found::Completed(call, row) => {
                // What this transaction wrote itself may still be rolled back.
                if row.committed
                    && let Some(outcome) = &row.outcome
                {
                    let kept = Kept::new(row.fingerprint, outcome.clone(), row.recorded_at);
                    self.tier.put(call.id(), &kept, row.until).await;
                }
                Ok(Step::Replay(replay(call, row)))
            }
        }
    }

    async fn settle(&mut self, run: TxRun, settlement: Settlement) -> Result<(), Error> {
        let completed = matches!(settlement, Settlement::Complete(_));
        let (id, owner) = (run.call.id(), run.owner());
        settle::<D>(&mut *self.tx, &self.tier.records, run, settlement).await?;
        if let Some(after) = self.after.filter(|_| completed) {
            after.note().completed.push((id, owner));
        }
        Ok(())
    }
}

/// How many records are read back in one statement.
const READ_AT_ONCE: usize = 256;

impl<F: Front> AfterCommit<F> {
    /// After the commit: reads the records of the noted calls in one statement on `pool`, and puts
    /// those into the front that are committed. What the transaction forgot is removed from it.
    ///
    /// Called too early, or for a transaction that was rolled back, it puts nothing. Where the database
    /// cannot be asked it puts nothing and logs that: the outcomes follow with their first repeats.
    ///
    /// # Cancel safety
    /// The reading goes on; some outcomes may be put and others not.
    pub async fn committed<D: Dialect>(self, pool: &Pool<D>) {
        let noted = self
            .noted
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        for id in noted.forgotten {
            self.tier.remove(id).await;
        }
        for some in noted.completed.chunks(READ_AT_ONCE) {
            let rows = match read_back(pool, &self.tier.records, some).await {
                Ok(rows) => rows,
                Err(error) => {
                    tracing::warn!(%error, "outcomes could not be read back for the front");
                    return;
                }
            };
            for (id, owner) in some {
                // The owner is of one attempt at one record: a row of another call is not this one.
                let row = rows.iter().find(|row| row.owner == *owner);
                if let Some(row) = row.filter(|row| !row.is_over && !row.is_gone)
                    && let Some(outcome) = &row.outcome
                {
                    let kept = Kept::new(row.fingerprint, outcome.clone(), row.recorded_at);
                    self.tier.put(*id, &kept, row.until).await;
                }
            }
        }
    }
}

/// Goes on when the caller drops it: a connection goes back as it was.
async fn read_back<D: Dialect>(
    pool: &Pool<D>,
    records: &Records,
    noted: &[(RecordId, Owner)],
) -> Result<Vec<Row>, Error> {
    let (pool, sql) = (pool.clone(), records.statements::<D>().status.clone());
    let ids: Vec<_> = noted.iter().map(|(id, _)| *id).collect();
    run_to_end(async move {
        let mut conn = pool.acquire().await.map_err(classify::<D>)?;
        let rows = D::committed(&mut conn, &sql, &ids).await;
        rows.map_err(classify::<D>)
    })
    .await
}
