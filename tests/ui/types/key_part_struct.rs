use idem::{MemoryStore, idempotent};

struct Inner {
    id: u64,
}

struct Request {
    part: Inner,
}

#[idempotent(key = "order:{req.part}", ttl = "1d", store = store, fingerprint = none)]
async fn pay(store: &MemoryStore, req: Request) -> Result<u64, idem::Error> {
    let _ = req;
    Ok(0)
}

fn main() {}
