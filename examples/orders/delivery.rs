//! The caller: one notice, one transaction, which is run again when the database asks for it.

use idem::retry::{GaveUp, RetryPolicy, retry_transaction};
use sqlx::{Pool, Transaction};

use super::Db;
use super::service::{pay, refund};
use crate::database::Delivered;
use crate::error::OrderError;
use crate::notice::{Event, Notice};
use crate::patience::patiently;

/// Books a notice, or finds it booked.
pub(crate) async fn deliver(pool: &Pool<Db>, notice: &Notice) -> Result<Delivered, OrderError> {
    patiently(|| attempt(pool, notice)).await
}

/// The transaction is ours: what `pay` and `refund` did, and the framework's record of it, are
/// committed here or not at all. Where the database gives it up, all of it is run again.
async fn attempt(pool: &Pool<Db>, notice: &Notice) -> Result<Delivered, OrderError> {
    retry_transaction(pool, RetryPolicy::default(), |mut tx| async move {
        book(&mut tx, notice).await
    })
    .await
    .map_err(GaveUp::into_error)
}

async fn book(tx: &mut Transaction<'_, Db>, notice: &Notice) -> Result<Delivered, OrderError> {
    let Notice {
        notice_id,
        trade,
        event,
    } = notice;
    match event {
        Event::Paid => {
            let (receipt, seen) = idem::observe(pay(tx, trade, notice_id)).await;
            receipt?;
            Ok(Delivered::by(seen.replayed()))
        }
        Event::Refunded(refunds) => {
            let mut known = true;
            for each in refunds {
                let (receipt, seen) = idem::observe(refund(tx, trade, each, notice_id)).await;
                receipt?;
                known &= seen.replayed();
            }
            Ok(Delivered::by(known))
        }
    }
}
