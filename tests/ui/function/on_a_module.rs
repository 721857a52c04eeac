use idem::idempotent;

#[idempotent(key = "{id}", ttl = "1d", store = store)]
mod payments {}

fn main() {}
