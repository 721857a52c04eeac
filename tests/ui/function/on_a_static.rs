use idem::idempotent;

#[idempotent(key = "{id}", ttl = "1d", store = store)]
static ID: u64 = 1;

fn main() {}
