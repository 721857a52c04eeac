use idem::idempotent;
use sqlx::SqliteConnection;

#[idempotent(key = "{id}", ttl = "1d", store = conn)]
async fn pay(conn: &mut SqliteConnection, id: u64) -> Result<u64, idem::Error> {
    Ok(id)
}

fn main() {}
