use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn pay<'a>(
    store: &MemoryStore,
    id: u64,
    name: &'a str,
) -> Result<Option<std::borrow::Cow<'a, str>>, idem::Error> {
    let _ = (store, id);
    let _ = store;
    Ok(Some(name.into()))
}

fn main() {}
