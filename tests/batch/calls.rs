//! The functions that are called: one operation, in a transaction of its own or in the caller's.

use idem::batch::{Batch, BatchError, Report};
use idem::idempotent;

use super::db::{Pool, Tx, effect};
use crate::support::{DAY, Failure, Item, World};

#[idempotent(
    key = "pay:{item.no}", scope = "batch.pay", shared_scope, ttl = "1d", store = pool, tx = tx,
    fingerprint(item.cents), max_outcome = "100B", companion = pay_call
)]
pub(crate) async fn pay(pool: &Pool, item: &Item, world: &World) -> Result<String, Failure> {
    effect(tx, item.no).await?;
    world.end(item.no).await
}

#[idempotent(
    key = "pay:{item.no}", scope = "batch.pay", shared_scope, ttl = "1d", store = tx,
    fingerprint(item.cents), max_outcome = "100B"
)]
pub(crate) async fn pay_in(tx: &mut Tx<'_>, item: &Item, world: &World) -> Result<String, Failure> {
    effect(tx, item.no).await?;
    world.end(item.no).await
}

#[idempotent(
    key = "pay:{item.no}", scope = "batch.other", ttl = "1d", store = tx,
    fingerprint(item.cents), companion = other_call
)]
#[allow(dead_code, reason = "only its companion is called")]
pub(crate) async fn other(tx: &mut Tx<'_>, item: &Item) -> Result<String, Failure> {
    Ok(item.no.to_string())
}

pub(crate) type Answer = Report<String, Failure>;

pub(crate) async fn each(
    pool: &Pool,
    key: &str,
    items: &[Item],
    world: &World,
) -> Result<Answer, idem::Error> {
    Batch::new("payouts", key, DAY)
        .concurrency(3)
        .each(pool, items, pay_call, |item| pay(pool, item, world))
        .await
}

pub(crate) async fn all(
    pool: &Pool,
    key: &str,
    items: &[Item],
    world: &World,
) -> Result<Answer, BatchError<Failure>> {
    Batch::new("payouts", key, DAY)
        .all(pool, items, pay_call, |mut tx, item| async move {
            pay_in(&mut tx, item, world).await
        })
        .await
}

pub(crate) async fn all_in(
    tx: &mut Tx<'_>,
    key: &str,
    items: &[Item],
    world: &World,
) -> Result<Answer, BatchError<Failure>> {
    Batch::new("payouts", key, DAY)
        .all_in(tx, items, pay_call, |mut tx, item| async move {
            pay_in(&mut tx, item, world).await
        })
        .await
}
