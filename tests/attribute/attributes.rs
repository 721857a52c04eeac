//! Other attributes, visibility, qualifiers.

use crate::support::{Failure, MemoryStore, Runs, idempotent};

pub mod outer {
    pub mod inner {
        use crate::support::{Failure, MemoryStore, idempotent};

        /// Documented, and visible up to `outer`.
        #[must_use = "for the test"]
        #[deprecated(note = "for the test")]
        #[doc(hidden)]
        #[inline]
        #[idempotent(key = "{id}", ttl = "1d", store = store)]
        #[allow(clippy::unused_async)]
        pub(in crate::attributes) async fn decorated(
            store: &MemoryStore,
            id: u8,
        ) -> Result<u8, Failure> {
            Ok(id)
        }

        #[idempotent(key = "{id}", ttl = "1d", store = store)]
        pub(super) async fn to_parent(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
            Ok(id)
        }
    }

    pub async fn through(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
        inner::to_parent(store, id).await
    }

    use super::{Failure, MemoryStore};
}

#[tokio::test]
#[allow(deprecated)]
async fn mac_13_attributes_and_visibility_stay() {
    let store = MemoryStore::new();
    assert_eq!(outer::inner::decorated(&store, 1).await.unwrap(), 1);
    assert_eq!(outer::through(&store, 1).await.unwrap(), 1);
}

#[cfg(any())]
#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn compiled_out(store: &MemoryStore, id: Absent) -> Result<u8, Failure> {
    Ok(id)
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
#[cfg(any())]
async fn compiled_out_below(store: &MemoryStore, id: Absent) -> Result<u8, Failure> {
    Ok(id)
}

#[cfg_attr(all(), idempotent(key = "{id}", ttl = "1d", store = store))]
async fn conditionally(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    let _ = store.len();
    Ok(id)
}

#[tokio::test]
async fn mac_13_cfg_attr() {
    let store = MemoryStore::new();
    assert_eq!(conditionally(&store, 1).await.unwrap(), 1);
    assert!(idem::observe(conditionally(&store, 1)).await.1.replayed());
}

static ABOVE: Runs = Runs::new();
static BELOW: Runs = Runs::new();

#[tracing::instrument(skip(store), ret, err)]
#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn traced_above(store: &MemoryStore, id: u8) -> Result<usize, Failure> {
    Ok(ABOVE.count())
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
#[tracing::instrument(skip(store), ret, err)]
async fn traced_below(store: &MemoryStore, mut id: u8) -> Result<usize, Failure> {
    id += 1;
    tracing::trace!(id);
    Ok(BELOW.count())
}

#[tokio::test]
async fn mac_18_instrument_above_and_below() {
    let store = MemoryStore::new();
    for _ in 0..2 {
        assert_eq!(traced_above(&store, 1).await.unwrap(), 1);
        assert_eq!(traced_below(&store, 1).await.unwrap(), 1);
    }
    assert_eq!((ABOVE.so_far(), BELOW.so_far()), (1, 1));
}

/// Two attributes are two claims, one inside the other.
#[idempotent(key = "{id}", ttl = "1d", store = store, scope = "outer")]
#[idempotent(key = "{id}", ttl = "1d", store = store, scope = "inner")]
async fn twice(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    Ok(id)
}

#[tokio::test]
async fn mac_18_two_attributes() {
    let store = MemoryStore::new();
    assert_eq!(twice(&store, 1).await.unwrap(), 1);
    assert_eq!(store.len(), 2);
}

#[test]
fn mac_18_a_runtime_below() {
    #[idempotent(key = "k", singleton, ttl = "1d", store = MemoryStore::new())]
    #[tokio::main(flavor = "current_thread")]
    async fn start() -> Result<u8, Failure> {
        Ok(1)
    }
    assert_eq!(start().unwrap(), 1);
}
