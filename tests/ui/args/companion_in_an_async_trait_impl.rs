use idem::{MemoryStore, idempotent};

#[async_trait::async_trait]
trait Pay {
    async fn pay(&self, id: u64) -> Result<u64, idem::Error>;
}

#[async_trait::async_trait]
impl Pay for MemoryStore {
    #[idempotent(key = "{id}", ttl = "1d", store = self, companion = pay_call)]
    async fn pay(&self, id: u64) -> Result<u64, idem::Error> {
        Ok(id)
    }
}

fn main() {}
