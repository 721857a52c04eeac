use idem::{MemoryStore, idempotent};

trait Pay {
    async fn pay(&self, id: u64) -> Result<u64, idem::Error>;
}

impl Pay for MemoryStore {
    #[idempotent(key = "{id}", ttl = "1d", store = self, companion = pay_call)]
    async fn pay(&self, id: u64) -> Result<u64, idem::Error> {
        Ok(id)
    }
}

fn main() {}
