use idem::{MemoryStore, idempotent};

type Answer = Option<u64>;

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn pay(store: &MemoryStore, id: u64) -> Answer {
    let _ = store;
    Some(id)
}

fn main() {}
