use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn pay<'a>(store: &MemoryStore, id: &'a u64) -> Result<&'a u64, idem::Error> {
    let _ = store;
    Ok(id)
}

fn main() {}
