use idem::idempotent;

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn pay(store: String, id: u64) -> Result<u64, idem::Error> {
    let _ = store;
    Ok(id)
}

fn main() {}
