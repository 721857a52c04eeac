use idem::idempotent;
use sqlx::SqlitePool;

#[derive(serde::Serialize)]
struct Request {
    id: u64,
}

#[idempotent(key = "{req.id}", ttl = "1d", store = pool, tx = tx, retry = 3)]
async fn pay(pool: &SqlitePool, req: Request) -> Result<u64, idem::Error> {
    let _ = tx;
    Ok(req.id)
}

fn main() {}
