use idem::{MemoryStore, idempotent};

struct Service;

#[idempotent(key = "{id}", ttl = "1d", store = store)]
impl Service {
    async fn pay(&self, store: &MemoryStore, id: u64) -> Result<u64, idem::Error> {
        let _ = store;
        Ok(id)
    }
}

fn main() {}
