use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", ttl = "1d", store = store, companion = 7)]
async fn pay(store: &MemoryStore, id: u64) -> Result<u64, idem::Error> {
    let _ = store;
    Ok(id)
}

#[idempotent(key = "{id}", ttl = "1d", store = store, companion)]
async fn pay_again(store: &MemoryStore, id: u64) -> Result<u64, idem::Error> {
    let _ = store;
    Ok(id)
}

#[idempotent(key = "{id}", ttl = "1d", store = store, companion = "status of pay")]
async fn pay_once_more(store: &MemoryStore, id: u64) -> Result<u64, idem::Error> {
    let _ = store;
    Ok(id)
}

fn main() {}
