#![deny(unused_mut)]

use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", ttl = "1d", store = store)]
pub async fn pay(store: &MemoryStore, mut id: u64) -> Result<u64, idem::Error> {
    let mut twice = id * 2;
    Ok(twice)
}

fn main() {}
