use idem::{MemoryStore, idempotent};

fn is_final(error: &str) -> bool {
    error.is_empty()
}

#[idempotent(key = "{id}", ttl = "1d", store = store, record_err = is_final)]
async fn pay(store: &MemoryStore, id: u64) -> Result<u64, Declined> {
    Ok(id)
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Declined;

impl From<idem::Error> for Declined {
    fn from(_: idem::Error) -> Self {
        Self
    }
}

fn main() {}
