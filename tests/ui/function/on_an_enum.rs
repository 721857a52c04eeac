use idem::idempotent;

#[idempotent(key = "{id}", ttl = "1d", store = store)]
enum Status {
    Paid,
}

fn main() {}
