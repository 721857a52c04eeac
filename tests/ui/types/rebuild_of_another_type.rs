use idem::{MemoryStore, idempotent};

pub struct Order {
    id: u64,
}

#[idempotent(key = "{id}", ttl = "1d", store = store, keep = |order: &Order| order.id, rebuild = async { Ok::<u64, idem::Error>(kept) })]
async fn create(store: &MemoryStore, id: u64) -> Result<Order, idem::Error> {
    Ok(Order { id })
}

fn main() {}
