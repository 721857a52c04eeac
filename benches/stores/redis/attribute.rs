//! The same through the attribute.

use idem::idempotent;
use idem::key::RecordId;
use idem::store::redis::RedisStore;
use serde::{Deserialize, Serialize};

use super::{Both, RECORDED};

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(crate) struct Order {
    pub(crate) id: u64,
    merchant: String,
    note: String,
}

async fn made(n: u64) -> Result<Order, idem::Error> {
    Ok(Order {
        id: n,
        merchant: "merchant-7".to_owned(),
        note: "x".repeat(150),
    })
}

#[idempotent(
    key = "order:merchant-7:{n}",
    ttl = "7d",
    store = "store",
    scope = "bench.first"
)]
async fn create(store: &RedisStore, n: u64) -> Result<Order, idem::Error> {
    made(n).await
}

#[idempotent(
    key = "order:merchant-7:{n}",
    ttl = "7d",
    store = "store",
    scope = "bench.replay"
)]
async fn repeat(store: &RedisStore, n: u64) -> Result<Order, idem::Error> {
    made(n).await
}

pub(crate) async fn recorded(store: &RedisStore, n: u64) -> Result<(), idem::Error> {
    repeat(store, n).await.map(drop)
}

pub(crate) async fn first(both: &Both, n: u64) -> Result<(), idem::Error> {
    create(&both.store, n | 1 << 62).await.map(drop)
}

pub(crate) async fn replay(both: &Both, n: u64) -> Result<(), idem::Error> {
    repeat(&both.store, n % RECORDED).await.map(drop)
}

/// The record of a replay.
pub(crate) fn id(n: u64) -> RecordId {
    RecordId::new("", "bench.replay", &[], &format!("order:merchant-7:{n}"))
}
