//! The caller's transaction behind a front.

use std::time::Instant;

use super::behind::from_front;
use super::transaction::{Found, TxRun, find, replay, settle};
use super::{Access, InTransaction, Settlement, Step};
use crate::error::Error;
use crate::operation::Call;
use crate::store::sql::Dialect;
use crate::store::tiered::{Front, OverTx};
use crate::store::{Kept, Until};

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
        let noted = match (&settlement, self.after) {
            (Settlement::Complete(outcome), Some(after)) => {
                let kept = Kept::new(run.call.fingerprint(), outcome.clone(), None);
                let until = Until::recorded(Instant::now(), run.call.retention());
                Some((after, run.call.id(), kept, until))
            }
            _ => None,
        };
        settle::<D>(&mut *self.tx, &self.tier.records, run, settlement).await?;
        if let Some((after, id, kept, until)) = noted {
            after.note(id, kept, until);
        }
        Ok(())
    }
}
