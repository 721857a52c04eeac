//! Futures stay `Send`.

use std::cell::Cell;
use std::sync::Arc;

use crate::support::{Failure, MemoryStore, Request, idempotent};

fn is_send<F: Future + Send>(future: F) -> F {
    future
}

/// `Send` and not `Sync`: a future may own it, and must not hold a reference to it.
type Owned = Box<dyn Fn() -> u8 + Send>;

struct Service {
    store: MemoryStore,
    n: u8,
}

impl Service {
    #[idempotent(key = "{id}", ttl = "1d", store = self.store)]
    async fn with_mut_self(&mut self, id: u8, f: Owned, cell: Cell<u8>) -> Result<u8, Failure> {
        tokio::task::yield_now().await;
        self.n += id;
        Ok(f() + cell.get() + self.n)
    }

    #[idempotent(key = "{id}", ttl = "1d", store = self.store)]
    async fn with_self(&self, id: u8, f: Owned) -> Result<u8, Failure> {
        tokio::task::yield_now().await;
        Ok(f() + id)
    }

    #[idempotent(key = "{id}", ttl = "1d", store = self.store)]
    async fn with_owned_self(self, id: u8, f: Owned) -> Result<u8, Failure> {
        tokio::task::yield_now().await;
        Ok(f() + id + self.n)
    }
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn with_owned_store(store: MemoryStore, id: u8, f: Owned) -> Result<u8, Failure> {
    tokio::task::yield_now().await;
    Ok(f() + id)
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn with_ref_store(store: &MemoryStore, id: u8, f: Owned) -> Result<u8, Failure> {
    tokio::task::yield_now().await;
    Ok(f() + id)
}

#[tokio::test]
async fn mac_17_arguments_that_are_not_sync_may_be_owned() {
    let f = || -> Owned { Box::new(|| 1) };
    let mut service = Service {
        store: MemoryStore::new(),
        n: 1,
    };
    let store = service.store.clone();
    assert_eq!(
        is_send(service.with_mut_self(1, f(), Cell::new(1)))
            .await
            .unwrap(),
        4
    );
    assert_eq!(is_send(service.with_self(1, f())).await.unwrap(), 2);
    assert_eq!(is_send(service.with_owned_self(1, f())).await.unwrap(), 4);
    assert_eq!(
        is_send(with_owned_store(store.clone(), 1, f()))
            .await
            .unwrap(),
        2
    );
    assert_eq!(is_send(with_ref_store(&store, 1, f())).await.unwrap(), 2);
}

#[idempotent(key = "{req.order_no}", ttl = "1d", store = store)]
async fn spawned(store: Arc<MemoryStore>, req: Request) -> Result<i64, Failure> {
    tokio::task::yield_now().await;
    Ok(req.cents)
}

#[tokio::test]
async fn mac_17_calls_may_be_spawned_and_boxed() {
    let store = Arc::new(MemoryStore::new());
    let task = tokio::spawn(spawned(Arc::clone(&store), Request::new("m", "1", 1)));
    assert_eq!(task.await.unwrap().unwrap(), 1);
    let call = spawned(store, Request::new("m", "1", 1));
    let boxed: std::pin::Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(call);
    assert_eq!(boxed.await.unwrap(), 1);
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn not_send(store: &MemoryStore, id: u8, rc: std::rc::Rc<u8>) -> Result<u8, Failure> {
    tokio::task::yield_now().await;
    Ok(*rc + id)
}

#[tokio::test]
async fn mac_17_bodies_that_are_not_send_run_where_they_are() {
    let store = MemoryStore::new();
    let local = tokio::task::LocalSet::new();
    let call = not_send(&store, 1, std::rc::Rc::new(1));
    assert_eq!(local.run_until(call).await.unwrap(), 2);
}
