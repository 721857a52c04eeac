use idem::idempotent;

#[idempotent(key = "k", singleton, ttl = "1d", store = idem::MemoryStore::new())]
async fn main() -> Result<(), idem::Error> {
    Ok(())
}
