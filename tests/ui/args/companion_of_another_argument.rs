use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", ttl = "1d", store = store, companion = pay_call)]
async fn pay(store: &MemoryStore, id: u64, cents: i64) -> Result<i64, idem::Error> {
    let _ = (store, id);
    Ok(cents)
}

fn main() {
    // What the key does not need is not taken, and another type is no key of this function.
    let _ = pay_call(&7, &500_i64);
    let _ = pay_call(&"7");
}
