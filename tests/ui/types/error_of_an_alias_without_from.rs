use idem::{MemoryStore, idempotent};

type Result<T> = std::result::Result<T, String>;

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn pay(store: &MemoryStore, id: u64) -> Result<u64> {
    Ok(id)
}

fn main() {}
