use idem::idempotent;
use sqlx::{Sqlite, Transaction};

#[idempotent(key = "{id}", ttl = "1d", store = tx)]
async fn pay(mut tx: Transaction<'static, Sqlite>, id: u64) -> Result<u64, idem::Error> {
    let _ = tx.commit().await;
    Ok(id)
}

fn main() {}
