use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn pay(store: &MemoryStore, id: u64) -> Result<impl Sized, idem::Error> {
    let _ = store;
    Ok(id)
}

fn main() {}
