use idem::idempotent;
use sqlx::{Sqlite, Transaction};

#[idempotent(key = "{id}", ttl = "1d", store = tx)]
async fn pay(tx: Transaction<'static, Sqlite>, id: u64) -> Result<u64, idem::Error> {
    Ok(id)
}

fn main() {}
