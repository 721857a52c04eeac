use idem::idempotent;
use sqlx::SqlitePool;

struct Order {
    id: u64,
}

#[idempotent(key = "{id}", ttl = "1d", store = pool, tx = tx)]
async fn pay(pool: &SqlitePool, id: u64) -> Result<Order, idem::Error> {
    let _ = tx;
    Ok(Order { id })
}

fn main() {}
