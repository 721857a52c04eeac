use idem::{MemoryStore, idempotent};

#[idempotent(key = "{idd}", ttl = 7, store = store, wait = "5", banana, reject = 1)]
async fn pay(store: &MemoryStore, id: u64) -> Result<u64, idem::Error> {
    let _ = store;
    Ok(id)
}

fn main() {}
