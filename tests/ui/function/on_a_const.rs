use idem::idempotent;

#[idempotent(key = "{id}", ttl = "1d", store = store)]
const ID: u64 = 1;

fn main() {}
