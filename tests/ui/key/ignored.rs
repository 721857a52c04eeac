use idem::{MemoryStore, idempotent};

#[idempotent(key = "{_}", ttl = "1d", store = store)]
async fn pay(store: &MemoryStore, _: u64) -> Result<u64, idem::Error> {
    let _ = store;
    Ok(0)
}

fn main() {}
