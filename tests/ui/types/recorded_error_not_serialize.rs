use idem::{MemoryStore, idempotent};

#[derive(Debug)]
enum PayError {
    Idem(idem::Error),
}

impl From<idem::Error> for PayError {
    fn from(error: idem::Error) -> Self {
        Self::Idem(error)
    }
}

#[idempotent(key = "{id}", ttl = "1d", store = store, record_err = all)]
async fn pay(store: &MemoryStore, id: u64) -> Result<u64, PayError> {
    Ok(id)
}

fn main() {}
