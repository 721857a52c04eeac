use idem::{MemoryStore, idempotent};

#[idempotent(key = "{a}{b}", ttl = "1d", store = store)]
async fn pay(store: &MemoryStore, a: u64, b: u64) -> Result<u64, idem::Error> {
    let _ = store;
    Ok(a + b)
}

fn main() {}
