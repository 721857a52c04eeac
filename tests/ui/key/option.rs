use idem::{MemoryStore, idempotent};

#[idempotent(key = "{part}", ttl = "1d", store = store)]
async fn pay(store: &MemoryStore, part: Option<u64>) -> Result<u64, idem::Error> {
    let _ = store;
    let _ = part;
    Ok(0)
}

fn main() {}
