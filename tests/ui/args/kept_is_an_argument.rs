use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", ttl = "1d", store = store, keep = |id| *id, rebuild = load(kept))]
async fn pay(store: &MemoryStore, id: u64, kept: u64) -> Result<u64, idem::Error> {
    let _ = (store, kept);
    Ok(id)
}

fn main() {}
