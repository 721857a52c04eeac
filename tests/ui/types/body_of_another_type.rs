use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn pay(store: &MemoryStore, id: u64) -> Result<String, idem::Error> {
    if id == 0 {
        return Ok(0);
    }
    Ok(id)
}

fn main() {}
