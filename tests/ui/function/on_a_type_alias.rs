use idem::idempotent;

#[idempotent(key = "{id}", ttl = "1d", store = store)]
type Id = u64;

fn main() {}
