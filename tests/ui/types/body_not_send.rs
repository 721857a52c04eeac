use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn pay(store: &MemoryStore, id: u64) -> Result<u64, idem::Error> {
    let rc = std::rc::Rc::new(id);
    tokio::task::yield_now().await;
    Ok(*rc)
}

fn main() {
    let store = MemoryStore::new();
    let future = pay(&store, 1);
    is_send(future);
}

fn is_send<T: Send>(_: T) {}
