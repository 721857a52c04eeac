#![deny(unused_variables)]

use idem::idempotent;
use sqlx::SqlitePool;

#[idempotent(key = "{id}", ttl = "1d", store = pool, tx = tx)]
pub async fn pay(pool: &SqlitePool, id: u64) -> Result<u64, idem::Error> {
    Ok(id)
}

fn main() {}
