//! All items or none: one transaction.

use sqlx::Transaction;

use super::lent::Lender;
use super::{ALL, Batch, BatchError, Lent, Noted, Outcome, Report, ids, note, replayed};
use crate::engine::{
    Driven, Entered, Holds, Run as _, close, contract, enter, leave, open, within,
};
use crate::error::Error;
use crate::key::RecordId;
use crate::observe::observe_only;
use crate::outcome::Outcome as Recordable;
use crate::status::CallRef;
use crate::store::sql::{Dialect, OwnPool, Records, classify};

/// So many items have a lock each, as alone. More of them in one transaction would use up the server's
/// lock table (Postgres), which by default has room for 64 locks of each session.
const LOCKED_ITEMS: usize = 64;

impl Batch {
    /// Where [`Batch::all_in`] keeps the batch's record; without it, in `idem_record`.
    pub fn records(mut self, records: &Records) -> Self {
        self.records = Some(records.clone());
        self
    }

    /// Calls `call` for every item in **one transaction of the framework's own**, one after another in
    /// the order of their keys, and commits if all of them are done. An item that fails rolls
    /// everything back, and nothing is recorded. A batch that was committed is answered from its
    /// record.
    ///
    /// `call` gets the transaction, lent for this item, and calls a function whose store is the
    /// caller's transaction; `key_of` is the companion of the same operation:
    /// `|mut tx, item| async move { pay_in(&mut tx, item.no, item.cents).await }`.
    ///
    /// On Postgres the items of a batch of more than 64 take no advisory lock each: a duplicate of one of
    /// them waits inside the database until the batch is committed, and so does the batch for an item that
    /// is running elsewhere. The session's `lock_timeout` bounds both.
    ///
    /// # Errors
    /// [`BatchError::Item`]: an item failed, or its key is known with another payload; nothing is done.
    /// [`BatchError::Batch`]: the batch itself, as in [`Batch::each`]; values above
    /// [`MAX_BATCH_OUTCOME`](super::MAX_BATCH_OUTCOME) bytes together
    /// ([`OutcomeTooLarge`](crate::ErrorKind::OutcomeTooLarge)), or one that JSON cannot give back,
    /// both rolled back; or the commit.
    ///
    /// # Panics
    /// As `call` does; everything is rolled back.
    ///
    /// # Cancel safety
    /// Everything is rolled back. Dropped while the commit runs, it may have been committed: send the
    /// batch again.
    pub async fn all<'i, I, P, KT, KE, T, E, Fut>(
        &self,
        pool: &P,
        items: &'i [I],
        key_of: impl Fn(&'i I) -> Result<CallRef<KT, KE>, Error>,
        call: impl FnMut(Lent<Transaction<'static, P::Db>>, &'i I) -> Fut,
    ) -> Result<Report<T, E>, BatchError<E>>
    where
        P: OwnPool + ?Sized,
        T: Recordable,
        Fut: Future<Output = Result<T, E>>,
    {
        let contract = contract::<Noted, BatchError<E>>();
        let ids = ids(items, key_of)?;
        let batch = self.call(&ALL, &ids, None)?;
        let run = match open(pool, batch, &contract).await {
            Entered::Run(run) => run,
            Entered::Answer(answer) => return Ok(replayed(&ids, &answer?)?),
        };
        let driver = run.driver();
        let (tx, apart) = run.apart();
        let lender = Lender::new(tx);
        let mut report = None;
        let driven = driver
            .drive(in_order(&lender, items, &ids, call, &mut report))
            .await;
        // Otherwise whoever kept it rolls it back.
        let tx = lender.back()?;
        close(apart.with(tx), driven, &contract).await?;
        Ok(done(report))
    }

    /// As [`Batch::all`], in **the caller's transaction**, which the caller commits or rolls back.
    ///
    /// The batch runs behind a savepoint. After an error nothing of it is left in the transaction; ask the
    /// error whether that can go on. After a panic, and where the future was dropped, roll back: a caller who
    /// commits all the same is refused by Postgres and SQLite, since the batch's record stands unfinished;
    /// MySQL has no such constraint, and reports the batch as [`Abandoned`](crate::ErrorKind::Abandoned)
    /// from then on.
    ///
    /// # Errors
    /// As [`Batch::all`].
    ///
    /// # Panics
    /// As `call` does; roll the transaction back.
    ///
    /// # Cancel safety
    /// Roll the transaction back.
    pub async fn all_in<'i, 't, 'c, D, I, KT, KE, T, E, Fut>(
        &self,
        tx: &'t mut Transaction<'c, D>,
        items: &'i [I],
        key_of: impl Fn(&'i I) -> Result<CallRef<KT, KE>, Error>,
        call: impl FnMut(Lent<&'t mut Transaction<'c, D>>, &'i I) -> Fut,
    ) -> Result<Report<T, E>, BatchError<E>>
    where
        D: Dialect,
        T: Recordable,
        Fut: Future<Output = Result<T, E>>,
    {
        let contract = contract::<Noted, BatchError<E>>();
        let ids = ids(items, key_of)?;
        let batch = self.call(&ALL, &ids, None)?;
        let records = self.records.as_ref().unwrap_or(Records::shared());
        D::savepoint(&mut *tx, "SAVEPOINT idem_batch")
            .await
            .map_err(classify::<D>)?;
        let run = match enter(&mut records.on(&mut *tx), batch, &contract).await {
            Entered::Run(run) => run,
            Entered::Answer(answer) => {
                let _ = D::savepoint(&mut *tx, RELEASE).await;
                return Ok(replayed(&ids, &answer?)?);
            }
        };
        let lender = Lender::new(tx);
        let mut report = None;
        let driven = run
            .driver()
            .drive(in_order(&lender, items, &ids, call, &mut report))
            .await;
        let tx = lender.back()?;
        let left = match driven {
            // Not released: where the savepoint is gone, an unfinished record keeps the database from
            // committing half a batch.
            Driven::Finished(Err(error)) => Err(error),
            driven => leave(&mut records.on(&mut *tx), run, driven, &contract).await,
        };
        if let Err(error) = left {
            // One that the database has ended has no savepoints any more.
            let _ = D::savepoint(&mut *tx, "ROLLBACK TO SAVEPOINT idem_batch").await;
            return Err(error);
        }
        D::savepoint(&mut *tx, RELEASE)
            .await
            .map_err(classify::<D>)?;
        Ok(done(report))
    }
}

const RELEASE: &str = "RELEASE SAVEPOINT idem_batch";

/// Without an error every item has its outcome.
fn done<T, E>(report: Option<Report<T, E>>) -> Report<T, E> {
    report.unwrap_or(Report {
        outcomes: Vec::new(),
    })
}

/// Calls the items in the order of their keys; gives what is recorded, and leaves the report.
async fn in_order<'i, X, I, T, E, Fut>(
    tx: &Lender<X>,
    items: &'i [I],
    ids: &[RecordId],
    mut call: impl FnMut(Lent<X>, &'i I) -> Fut,
    report: &mut Option<Report<T, E>>,
) -> Result<Noted, BatchError<E>>
where
    T: Recordable,
    Fut: Future<Output = Result<T, E>>,
{
    let mut order: Vec<usize> = (0..ids.len()).collect();
    order.sort_by_key(|&index| (ids[index], index));
    let mut found = Noted::new();
    let mut outcomes = Vec::with_capacity(items.len());
    for index in order {
        // In a box: it is handed through several futures, each of which would have room for all of it.
        let item = Box::pin(call(tx.lend()?, &items[index]));
        let (answer, seen) = if ids.len() > LOCKED_ITEMS {
            observe_only(ids[index], within(Holds::Unlocked, item)).await
        } else {
            observe_only(ids[index], item).await
        };
        let outcome = Outcome::of(answer, &seen);
        if let Some(value) = outcome.value() {
            note(&mut found, ids[index], value)?;
        }
        let (mismatch, error) = match outcome {
            Outcome::Failed(error) => (false, error),
            Outcome::Mismatch(error) => (true, error),
            done => {
                outcomes.push((index, done));
                continue;
            }
        };
        return Err(BatchError::Item {
            index,
            mismatch,
            error,
        });
    }
    outcomes.sort_by_key(|&(index, _)| index);
    let outcomes = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
    *report = Some(Report { outcomes });
    Ok(found)
}
