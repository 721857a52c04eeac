use idem::{MemoryStore, idempotent};

struct Request {
    part: Option<u64>,
}

#[idempotent(key = "order:{req.part}", ttl = "1d", store = store, fingerprint = none)]
async fn pay(store: &MemoryStore, req: Request) -> Result<u64, idem::Error> {
    let _ = req;
    Ok(0)
}

fn main() {}
