use idem::idempotent;

#[idempotent(key = "{id}", ttl = "1d", store = store)]
pub use std::fmt;

fn main() {}
