use idem::idempotent;

#[idempotent(key = "{id}", ttl = "1d", store = store)]
use std::fmt;

fn main() {}
