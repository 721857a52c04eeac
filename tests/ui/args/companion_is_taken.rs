use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", ttl = "1d", store = store, companion = pay_call)]
async fn pay(store: &MemoryStore, id: u64) -> Result<u64, idem::Error> {
    let _ = store;
    Ok(id)
}

fn pay_call() {}

fn main() {}
