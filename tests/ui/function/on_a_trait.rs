use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", ttl = "1d", store = store)]
trait Pay {
    async fn pay(&self, store: &MemoryStore, id: u64) -> Result<u64, idem::Error>;
}

fn main() {}
