#![deny(unused_variables)]

use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", ttl = "1d", store = store)]
pub async fn pay(store: &MemoryStore, id: u64) -> Result<u64, idem::Error> {
    let twice = id * 2;
    Ok(id)
}

fn main() {}
