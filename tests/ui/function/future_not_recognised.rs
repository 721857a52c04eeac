use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", ttl = "1d", store = store)]
fn pay(
    store: &MemoryStore,
    id: u64,
) -> std::pin::Pin<Box<dyn Future<Output = Result<u64, idem::Error>> + Send>> {
    let _ = store;
    let future = async move { Ok(id) };
    Box::pin(future)
}

fn main() {}
