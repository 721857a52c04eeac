use idem::{MemoryStore, idempotent};

trait Pay {
    #[idempotent(key = "{id}", ttl = "1d", store = store)]
    async fn pay(&self, store: &MemoryStore, id: u64) -> Result<u64, idem::Error>;
}

fn main() {}
