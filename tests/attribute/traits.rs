//! Methods of traits: native ones, `#[async_trait]`, hand-written boxed futures.

use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;

use crate::support::{Failure, MemoryStore, Request, Runs, idempotent};

#[derive(Clone, Default)]
struct Pay {
    store: MemoryStore,
    runs: Arc<Runs>,
    log: Vec<u8>,
}

#[derive(Clone, Default)]
struct Refund {
    store: MemoryStore,
    runs: Arc<Runs>,
}

#[allow(async_fn_in_trait)]
trait Native {
    fn store(&self) -> &MemoryStore;
    fn runs(&self) -> &Runs;

    async fn required(&self, id: u8) -> Result<usize, Failure>;

    #[idempotent(key = "{id}", ttl = "1d", store = self.store().clone())]
    async fn provided(&self, id: u8) -> Result<usize, Failure>
    where
        Self: Sized,
    {
        let _ = id;
        Ok(self.runs().count())
    }

    #[idempotent(key = "{id}", ttl = "1d", store = &self.store().clone())]
    async fn unsized_too(&self, id: u8) -> Result<usize, Failure> {
        let _ = id;
        Ok(self.runs().count())
    }
}

impl Native for Pay {
    fn store(&self) -> &MemoryStore {
        &self.store
    }

    fn runs(&self) -> &Runs {
        &self.runs
    }

    #[idempotent(key = "{id}", ttl = "1d", store = self.store)]
    async fn required(&self, id: u8) -> Result<usize, Failure> {
        let _ = id;
        Ok(self.runs.count())
    }
}

impl Native for Refund {
    fn store(&self) -> &MemoryStore {
        &self.store
    }

    fn runs(&self) -> &Runs {
        &self.runs
    }

    #[idempotent(key = "{id}", ttl = "1d", store = self.store)]
    async fn required(&self, id: u8) -> Result<usize, Failure> {
        let _ = id;
        Ok(self.runs.count() + 100)
    }
}

#[tokio::test]
async fn mac_05_trait_methods_written_and_provided() {
    let pay = Pay::default();
    let refund = Refund {
        store: pay.store.clone(),
        ..Refund::default()
    };
    for _ in 0..2 {
        assert_eq!(pay.required(1).await.unwrap(), 1);
        assert_eq!(pay.provided(1).await.unwrap(), 2);
        assert_eq!(pay.unsized_too(1).await.unwrap(), 3);
        assert_eq!(
            refund.required(1).await.unwrap(),
            101,
            "another type is another operation"
        );
        assert_eq!(refund.provided(1).await.unwrap(), 2);
    }
    assert_eq!((pay.runs.so_far(), refund.runs.so_far()), (3, 2));
}

#[derive(serde::Serialize)]
struct Path<T>(T);

#[async_trait]
trait Boxed: Send + Sync {
    async fn by_ref(&self, id: u8) -> Result<usize, Failure>;
    async fn by_mut(&mut self, id: u8, f: Box<dyn Fn() -> u8 + Send>) -> Result<usize, Failure>;
    async fn by_arc(self: Arc<Self>, id: u8) -> Result<usize, Failure>;
    async fn patterns(
        &self,
        path: Path<u8>,
        pair: (u8, u8),
        ignored: Vec<u8>,
    ) -> Result<usize, Failure>;
    async fn borrowed(&self, req: &Request, name: &str) -> Result<i64, Failure>;
    async fn changed(&self, id: u8) -> Result<u8, Failure>;
    async fn traced(&self, id: u8) -> Result<usize, Failure>;
    async fn traced_below(&self, id: u8) -> Result<usize, Failure>;

    #[idempotent(key = "{id}", ttl = "1d", store = store)]
    async fn defaulted(&self, store: &MemoryStore, id: u8) -> Result<u8, Failure> {
        Ok(id)
    }
}

#[async_trait]
impl Boxed for Pay {
    #[idempotent(key = "{id}", ttl = "1d", store = self.store)]
    async fn by_ref(&self, id: u8) -> Result<usize, Failure> {
        let _ = id;
        tokio::task::yield_now().await;
        Ok(self.runs.count())
    }

    #[idempotent(key = "{id}", ttl = "1d", store = &self.store)]
    async fn by_mut(&mut self, id: u8, f: Box<dyn Fn() -> u8 + Send>) -> Result<usize, Failure> {
        tokio::task::yield_now().await;
        self.log.push(id + f());
        Ok(self.log.len() + self.runs.count())
    }

    #[idempotent(key = "{id}", ttl = "1d", store = self.store)]
    async fn by_arc(self: Arc<Self>, id: u8) -> Result<usize, Failure> {
        let _ = id;
        Ok(self.runs.count())
    }

    #[idempotent(key = "{id}-{a}", ttl = "1d", store = self.store)]
    async fn patterns(
        &self,
        Path(id): Path<u8>,
        (a, _): (u8, u8),
        _: Vec<u8>,
    ) -> Result<usize, Failure> {
        let _ = (id, a);
        Ok(self.runs.count())
    }

    #[idempotent(key = "{name}:{req.order_no}", ttl = "1d", store = self.store)]
    async fn borrowed(&self, req: &Request, name: &str) -> Result<i64, Failure> {
        self.runs.count();
        let _ = name;
        Ok(req.cents)
    }

    #[idempotent(key = "{id}", ttl = "1d", store = self.store)]
    async fn changed(&self, mut id: u8) -> Result<u8, Failure> {
        id += 1;
        self.runs.count();
        Ok(id)
    }

    #[tracing::instrument(skip(self))]
    #[idempotent(key = "{id}", ttl = "1d", store = self.store)]
    async fn traced(&self, id: u8) -> Result<usize, Failure> {
        let _ = id;
        Ok(self.runs.count())
    }

    #[idempotent(key = "{id}", ttl = "1d", store = self.store)]
    #[tracing::instrument(skip(self))]
    async fn traced_below(&self, id: u8) -> Result<usize, Failure> {
        Ok(self.runs.count())
    }
}

#[tokio::test]
async fn mac_09_async_trait_runs_the_body_under_the_claim() {
    let pay = Pay::default();
    for _ in 0..2 {
        assert_eq!(pay.by_ref(1).await.unwrap(), 1);
        assert_eq!(pay.patterns(Path(1), (2, 3), vec![]).await.unwrap(), 2);
        assert_eq!(
            pay.borrowed(&Request::new("m", "1", 9), "n").await.unwrap(),
            9
        );
        assert_eq!(pay.changed(1).await.unwrap(), 2);
        assert_eq!(Arc::new(pay.clone()).by_arc(1).await.unwrap(), 5);
        assert_eq!(pay.defaulted(&pay.store, 3).await.unwrap(), 3);
    }
    assert_eq!(pay.runs.so_far(), 5);
}

#[tokio::test]
async fn mac_09_async_trait_with_mut_self() {
    let mut pay = Pay::default();
    for _ in 0..2 {
        assert_eq!(pay.by_mut(1, Box::new(|| 1)).await.unwrap(), 2);
    }
    assert_eq!(pay.log, [2]);
}

#[tokio::test]
async fn mac_18_instrument_above_and_below_inside_async_trait() {
    let pay = Pay::default();
    for _ in 0..2 {
        assert_eq!(pay.traced(1).await.unwrap(), 1);
        assert_eq!(pay.traced_below(1).await.unwrap(), 2);
    }
}

#[tokio::test]
async fn mac_09_async_trait_objects_and_tasks() {
    let pay: Arc<dyn Boxed> = Arc::new(Pay::default());
    let task = tokio::spawn({
        let pay = Arc::clone(&pay);
        async move { pay.by_ref(1).await }
    });
    assert_eq!(task.await.unwrap().unwrap(), 1);
    assert_eq!(pay.by_ref(1).await.unwrap(), 1);
}

#[async_trait(?Send)]
trait Local {
    async fn run(&self, id: u8, rc: std::rc::Rc<u8>) -> Result<u8, Failure>;
}

#[async_trait(?Send)]
impl Local for Pay {
    #[idempotent(key = "{id}", ttl = "1d", store = self.store)]
    async fn run(&self, id: u8, rc: std::rc::Rc<u8>) -> Result<u8, Failure> {
        self.runs.count();
        tokio::task::yield_now().await;
        Ok(*rc + id)
    }
}

#[tokio::test]
async fn mac_09_async_trait_that_is_not_send() {
    let pay = Pay::default();
    assert_eq!(Local::run(&pay, 1, std::rc::Rc::new(1)).await.unwrap(), 2);
    assert_eq!(Local::run(&pay, 1, std::rc::Rc::new(1)).await.unwrap(), 2);
    assert_eq!(pay.runs.so_far(), 1);
}

#[async_trait]
trait Generic<T: Send + Sync + 'static> {
    async fn run<U: std::fmt::Debug + Send>(&self, id: u8, t: T, u: U) -> Result<usize, Failure>;
}

#[async_trait]
impl<T: Send + Sync + 'static> Generic<T> for Pay {
    #[idempotent(key = "{id}", ttl = "1d", store = self.store)]
    async fn run<U: std::fmt::Debug + Send>(&self, id: u8, t: T, u: U) -> Result<usize, Failure> {
        drop(t);
        Ok(format!("{u:?}").len() + self.runs.count() + usize::from(id))
    }
}

#[tokio::test]
async fn mac_09_generic_async_trait() {
    let pay = Pay::default();
    assert_eq!(Generic::<u8>::run(&pay, 0, 1, "ab").await.unwrap(), 5);
    assert_eq!(Generic::<u8>::run(&pay, 0, 1, "ab").await.unwrap(), 5);
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

static BY_HAND: Runs = Runs::new();

#[idempotent(key = "{id}", ttl = "1d", store = store)]
fn by_hand(
    store: &MemoryStore,
    id: u8,
) -> Pin<Box<dyn Future<Output = Result<usize, Failure>> + Send + '_>> {
    let before = usize::from(id);
    Box::pin(async move {
        tokio::task::yield_now().await;
        Ok(before + BY_HAND.count())
    })
}

static OPAQUE: Runs = Runs::new();

#[idempotent(key = "{id}", ttl = "1d", store = store)]
#[allow(clippy::manual_async_fn)]
fn opaque(store: &MemoryStore, id: u8) -> impl Future<Output = Result<usize, Failure>> + Send {
    async move {
        let _ = id;
        Ok(OPAQUE.count())
    }
}

#[tokio::test]
async fn mac_09_futures_written_by_hand() {
    let store = MemoryStore::new();
    for _ in 0..2 {
        let future: BoxFuture<'_, _> = by_hand(&store, 1);
        assert_eq!(future.await.unwrap(), 2);
        assert_eq!(opaque(&store, 1).await.unwrap(), 1);
    }
    assert_eq!((BY_HAND.so_far(), OPAQUE.so_far()), (1, 1));
}
