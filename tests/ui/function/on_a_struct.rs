use idem::idempotent;

#[idempotent(key = "{id}", ttl = "1d", store = store)]
struct Service {
    id: u64,
}

fn main() {}
