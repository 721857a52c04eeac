use idem::{MemoryStore, idempotent};

pub struct Order {
    id: u64,
}

pub struct Part(u64);

async fn load(id: u64) -> Result<Order, idem::Error> {
    Ok(Order { id })
}

#[idempotent(key = "{id}", ttl = "1d", store = store, keep = |order: &Order| Part(order.id), rebuild = load(kept.0))]
async fn create(store: &MemoryStore, id: u64) -> Result<Order, idem::Error> {
    Ok(Order { id })
}

fn main() {}
