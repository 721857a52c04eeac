use idem::{MemoryStore, idempotent};

#[derive(serde::Serialize)]
struct Order {
    id: u64,
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn pay(store: &MemoryStore, id: u64) -> Result<Vec<Order>, idem::Error> {
    Ok(vec![Order { id }])
}

fn main() {}
