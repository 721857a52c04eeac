use idem::{MemoryStore, idempotent};

async fn find(id: u64) -> Option<u64> {
    Some(id)
}

#[idempotent(key = "{id}", ttl = "1d", store = store, backstop = find(id))]
async fn pay(store: &MemoryStore, id: u64) -> Result<u64, idem::Error> {
    Ok(id)
}

fn main() {}
