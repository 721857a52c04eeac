use idem::{MemoryStore, idempotent};

struct Order {
    id: u64,
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn pay(store: &MemoryStore, id: u64) -> Result<Order, idem::Error> {
    Ok(Order { id })
}

fn main() {}
