use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn pay(store: &MemoryStore, id: u64) -> () {
    let _ = (store, id);
}

fn main() {}
