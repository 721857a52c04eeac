use idem::{MemoryStore, idempotent};

struct Opaque;

#[idempotent(key = "{id}", ttl = "1d", store = store, fingerprint(opaque))]
async fn pay(store: &MemoryStore, id: u64, opaque: Opaque) -> Result<u64, idem::Error> {
    let _ = opaque;
    Ok(id)
}

fn main() {}
