use idem::idempotent;

macro_rules! functions {
    () => {};
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
functions! {}

fn main() {}
