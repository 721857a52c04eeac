use idem::{MemoryStore, idempotent};

pub struct Order(i64);

#[idempotent(key = "{no}", ttl = "1d", store = store, companion = order_call,
    keep = |order: &Order| order.0, rebuild = async { Ok::<_, idem::Error>(Order(kept)) })]
async fn order(store: &MemoryStore, no: i64) -> Result<Order, idem::Error> {
    let _ = store;
    Ok(Order(no))
}

fn main() {}
