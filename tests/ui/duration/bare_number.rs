use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store, ttl = 7)]
async fn pay(store: &MemoryStore, id: u64) -> Result<u64, idem::Error> {
    let _ = store;
    Ok(id)
}

fn main() {}
