//! Every argument, in both forms.

use std::time::Duration;

use idem::store::Store as _;

use crate::support::{ErrorKind, Failure, MemoryStore, idempotent};

#[idempotent(key("k", id), ttl = 7d, store = store, wait = 5s, lease = 30s, codec = json, schema = 2, key_text = stored, scope = "settings.tokens", shared_scope)]
async fn token_forms(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    Ok(id)
}

#[idempotent(
    key = "k:{id}",
    ttl = "7d",
    store = "store",
    wait = "5s",
    lease = "30s",
    codec = "json",
    schema = "2",
    key_text = "stored",
    scope = "settings.tokens",
    shared_scope
)]
async fn text_forms(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    Ok(id + 1)
}

#[tokio::test]
async fn both_forms_mean_the_same() {
    let store = MemoryStore::new();
    assert_eq!(token_forms(&store, 1).await.unwrap(), 1);
    assert_eq!(text_forms(&store, 1).await.unwrap(), 1);
}

#[idempotent(key = "{id}", ttl = "never", store = store)]
async fn never(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    Ok(id)
}

#[idempotent(key = "{id}", ttl = never, store = store)]
async fn never_token(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    Ok(id)
}

struct Config {
    keep: Duration,
    store: MemoryStore,
}

impl Config {
    #[idempotent(key = "{id}", ttl = self.keep * 2, store = self.store)]
    async fn at_run_time(&self, id: u8) -> Result<u8, Failure> {
        Ok(id)
    }
}

#[idempotent(key = "{id}", ttl = Duration::from_secs(keep), store = store)]
async fn by_argument(store: &MemoryStore, id: u8, keep: u64) -> Result<u8, Failure> {
    Ok(id)
}

#[tokio::test]
async fn a_ttl_may_be_for_ever_or_known_at_run_time_only() {
    let store = MemoryStore::new();
    assert_eq!(never(&store, 1).await.unwrap(), 1);
    assert_eq!(never_token(&store, 1).await.unwrap(), 1);
    assert_eq!(by_argument(&store, 1, 5).await.unwrap(), 1);
    let config = Config {
        keep: Duration::from_secs(1),
        store: store.clone(),
    };
    assert_eq!(config.at_run_time(1).await.unwrap(), 1);
}

#[tokio::test]
async fn a_run_time_ttl_of_zero_is_refused_before_the_body() {
    let store = MemoryStore::new();
    let error = by_argument(&store, 1, 0).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::InvalidTtl));
    assert_eq!(store.len(), 0);
}

#[idempotent(key = "{id}", ttl = "1d", store = store, key_text = hidden)]
async fn hidden(store: &MemoryStore, id: u64) -> Result<u64, Failure> {
    Ok(id)
}

#[tokio::test]
async fn a_hidden_key_is_not_kept() {
    let store = MemoryStore::new();
    let (_, seen) = idem::observe(hidden(&store, 4_711)).await;
    let stored = store
        .lookup(seen.record_id().unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(stored.key_text, None);
}

#[idempotent(key = "{id}", ttl = "1d", store = store, reject)]
async fn rejecting(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(id)
}

#[tokio::test]
async fn a_duplicate_of_a_running_call_is_refused_at_once() {
    let store = MemoryStore::new();
    let (first, second) = tokio::join!(rejecting(&store, 1), rejecting(&store, 1));
    assert_eq!(first.unwrap(), 1);
    assert_eq!(second.unwrap_err().kind(), Some(ErrorKind::InProgress));
}

#[idempotent(key = "{id}", ttl = "1d", store = STORE.clone())]
async fn from_an_expression(id: u8) -> Result<u8, Failure> {
    Ok(id)
}

#[idempotent(key = "{id}", ttl = "1d", store = *STORE)]
async fn from_a_static(id: u8) -> Result<u8, Failure> {
    Ok(id)
}

#[idempotent(key = "{id}", ttl = "1d", store = &*STORE)]
async fn from_a_reference(id: u8) -> Result<u8, Failure> {
    Ok(id)
}

static STORE: std::sync::LazyLock<MemoryStore> = std::sync::LazyLock::new(MemoryStore::new);

#[tokio::test]
async fn a_store_may_be_a_static() {
    assert_eq!(from_an_expression(1).await.unwrap(), 1);
    assert_eq!(from_a_static(1).await.unwrap(), 1);
    assert_eq!(from_a_reference(1).await.unwrap(), 1);
    assert_eq!(STORE.len(), 3);
}

#[cfg(feature = "msgpack")]
mod msgpack {
    use super::{Failure, MemoryStore, idempotent};

    #[idempotent(key = "{id}", ttl = "1d", store = store, codec = msgpack)]
    async fn compact(store: &MemoryStore, id: u8) -> Result<Vec<u8>, Failure> {
        Ok(vec![id])
    }

    #[tokio::test]
    async fn outcomes_may_be_messagepack() {
        let store = MemoryStore::new();
        assert_eq!(compact(&store, 1).await.unwrap(), [1]);
        assert_eq!(compact(&store, 1).await.unwrap(), [1]);
    }
}

#[idempotent(key = "{id}", ttl = "1d", store = store, lease = Duration::from_millis(left))]
async fn until_a_deadline(store: &MemoryStore, id: u8, left: u64) -> Result<u8, Failure> {
    Ok(id)
}

#[tokio::test]
async fn a_lease_that_is_known_at_run_time_only() {
    let store = MemoryStore::new();
    assert_eq!(until_a_deadline(&store, 1, 60_000).await.unwrap(), 1);
    let error = until_a_deadline(&store, 2, 0).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::InvalidLease));
    assert_eq!(store.len(), 1, "nothing was reserved");
}
