use idem::{MemoryStore, idempotent};

/// # Safety
/// `id` points to a number.
#[idempotent(key = "k", singleton, ttl = "1d", store = store, fingerprint = none)]
async unsafe fn read(store: &MemoryStore, id: *const u64) -> Result<u64, idem::Error> {
    // SAFETY: promised by the caller.
    Ok(unsafe { *id })
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let (store, number) = (MemoryStore::new(), 7);
    // SAFETY: it points to `number`.
    let answer = runtime.block_on(unsafe { read(&store, &raw const number) });
    assert_eq!(answer.unwrap(), 7);
}
