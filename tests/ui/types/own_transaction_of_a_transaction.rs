use idem::idempotent;
use sqlx::{Sqlite, Transaction};

#[idempotent(key = "{id}", ttl = "1d", store = outer, tx = tx)]
async fn pay(outer: &mut Transaction<'static, Sqlite>, id: u64) -> Result<u64, idem::Error> {
    let _ = tx;
    Ok(id)
}

fn main() {}
