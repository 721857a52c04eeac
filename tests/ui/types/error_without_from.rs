use idem::{MemoryStore, idempotent};

#[derive(Debug)]
enum PayError {
    Declined,
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn pay(store: &MemoryStore, id: u64) -> Result<u64, PayError> {
    if id == 0 { Err(PayError::Declined) } else { Ok(id) }
}

fn main() {}
