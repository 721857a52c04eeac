//! Every kind of receiver.

use std::pin::Pin;
use std::sync::Arc;

use crate::support::{Failure, MemoryStore, Runs, idempotent};

#[derive(Clone, Default)]
struct Service {
    store: MemoryStore,
    tenant: String,
    runs: Arc<Runs>,
    changes: usize,
}

impl Service {
    fn new() -> Self {
        Self {
            tenant: "t".into(),
            ..Self::default()
        }
    }

    fn tenant(&self) -> &str {
        &self.tenant
    }

    fn lend(&self) -> MemoryStore {
        self.store.clone()
    }

    #[idempotent(key = "{self.tenant}:{id}", ttl = "1d", store = self.store)]
    async fn by_ref(&self, id: u64) -> Result<usize, Failure> {
        let _ = id;
        Ok(self.runs.count())
    }

    #[idempotent(key = "{self.tenant()}:{id}", ttl = "1d", store = self.store)]
    async fn by_mut(&mut self, id: u64, names: Vec<String>) -> Result<usize, Failure> {
        self.changes += 1;
        tokio::task::yield_now().await;
        Ok(self.changes + names.len() + self.runs.count() + usize::try_from(id).unwrap_or(0))
    }

    #[idempotent(key = "{self.tenant}:{id}", ttl = "1d", store = self.store)]
    async fn by_value(self, id: u64) -> Result<usize, Failure> {
        let Self { runs, .. } = self;
        let _ = id;
        Ok(runs.count())
    }

    #[idempotent(key = "{self.tenant}:{id}", ttl = "1d", store = &self.store)]
    async fn by_value_mut(mut self, id: u64) -> Result<usize, Failure> {
        self.changes += 1;
        let _ = id;
        Ok(self.runs.count())
    }

    #[idempotent(key = "{self.tenant}:{id}", ttl = "1d", store = self.store)]
    async fn by_arc(self: Arc<Self>, id: u64) -> Result<usize, Failure> {
        let _ = id;
        Ok(self.runs.count())
    }

    #[idempotent(key = "{self.tenant}:{id}", ttl = "1d", store = self.store)]
    async fn by_box(self: Box<Self>, id: u64) -> Result<usize, Failure> {
        let _ = id;
        Ok(self.runs.count())
    }

    #[idempotent(key = "{self.tenant}:{id}", ttl = "1d", store = self.store)]
    #[allow(clippy::needless_arbitrary_self_type)]
    async fn by_typed_ref(self: &Self, id: u64) -> Result<usize, Failure> {
        let _ = id;
        Ok(self.runs.count())
    }

    #[idempotent(key = "{self.tenant}:{id}", ttl = "1d", store = self.store)]
    async fn by_pin(mut self: Pin<&mut Self>, id: u64) -> Result<usize, Failure> {
        self.as_mut().get_mut().changes += 1;
        let _ = id;
        Ok(self.runs.count())
    }

    #[idempotent(key = "{id}", ttl = "1d", store = store)]
    async fn associated(store: &MemoryStore, id: u64) -> Result<u64, Failure> {
        Ok(id)
    }

    #[idempotent(key = "{me.tenant}", ttl = "1d", store = me.store)]
    async fn self_elsewhere(me: &Self, others: Vec<Option<&Self>>) -> Result<usize, Failure> {
        let _ = others.len();
        Ok(me.runs.count())
    }

    #[idempotent(key = "{self.tenant}:{id}", ttl = "1d", store = self.lend())]
    async fn lent_by_a_method(&self, id: u64) -> Result<usize, Failure> {
        let _ = id;
        Ok(self.runs.count())
    }

    #[idempotent(
        key = "{self.tenant}:{id}",
        ttl = "1d",
        store = "self.store",
        fingerprint = "self.tenant"
    )]
    async fn in_strings(&self, id: u64) -> Result<usize, Failure> {
        let _ = id;
        Ok(self.runs.count())
    }
}

macro_rules! runs_once {
    ($($name:ident: $call:expr;)*) => {$(
        #[tokio::test]
        async fn $name() {
            let service = Service::new();
            let call: fn(Service) -> std::pin::Pin<Box<dyn Future<Output = Result<usize, Failure>>>> = $call;
            assert_eq!(call(service.clone()).await.unwrap(), 1);
            assert_eq!(call(service.clone()).await.unwrap(), 1);
            assert_eq!(service.runs.so_far(), 1);
        }
    )*};
}

runs_once! {
    mac_05_ref_self: |s| Box::pin(async move { s.by_ref(1).await });
    mac_05_self: |s| Box::pin(async move { s.by_value(1).await });
    mac_05_mut_self: |s| Box::pin(async move { s.by_value_mut(1).await });
    mac_05_arc_self: |s| Box::pin(async move { Arc::new(s).by_arc(1).await });
    mac_05_box_self: |s| Box::pin(async move { Box::new(s).by_box(1).await });
    mac_05_typed_ref_self: |s| Box::pin(async move { s.by_typed_ref(1).await });
    mac_05_pin_self: |mut s| Box::pin(async move { Pin::new(&mut s).by_pin(1).await });
    mac_05_self_as_an_argument_type: |s| Box::pin(async move { Service::self_elsewhere(&s, vec![]).await });
    mac_05_store_lent_by_a_method: |s| Box::pin(async move { s.lent_by_a_method(1).await });
    mac_05_string_forms: |s| Box::pin(async move { s.in_strings(1).await });
}

#[tokio::test]
async fn mac_05_ref_mut_self() {
    let mut service = Service::new();
    assert_eq!(service.by_mut(1, vec![]).await.unwrap(), 3);
    assert_eq!(service.by_mut(1, vec![]).await.unwrap(), 3);
    assert_eq!((service.changes, service.runs.so_far()), (1, 1));
}

#[tokio::test]
async fn mac_05_associated_functions() {
    let store = MemoryStore::new();
    assert_eq!(Service::associated(&store, 7).await.unwrap(), 7);
    assert!(
        idem::observe(Service::associated(&store, 7))
            .await
            .1
            .replayed()
    );
}

mod other {
    use super::{Failure, MemoryStore, idempotent};

    pub struct A;
    pub struct B;

    impl A {
        #[idempotent(key = "{id}", ttl = "1d", store = store)]
        pub async fn run(&self, store: &MemoryStore, id: u64) -> Result<String, Failure> {
            Ok(format!("A{id}"))
        }
    }

    impl B {
        #[idempotent(key = "{id}", ttl = "1d", store = store)]
        pub async fn run(&self, store: &MemoryStore, id: u64) -> Result<String, Failure> {
            Ok(format!("B{id}"))
        }
    }

    #[idempotent(key = "{id}", ttl = "1d", store = store)]
    pub async fn run(store: &MemoryStore, id: u64) -> Result<String, Failure> {
        Ok(format!("other{id}"))
    }
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn run(store: &MemoryStore, id: u64) -> Result<String, Failure> {
    Ok(format!("here{id}"))
}

#[tokio::test]
async fn key_04_equal_names_in_different_places_are_different_operations() {
    let store = MemoryStore::new();
    assert_eq!(other::A.run(&store, 1).await.unwrap(), "A1");
    assert_eq!(other::B.run(&store, 1).await.unwrap(), "B1");
    assert_eq!(other::run(&store, 1).await.unwrap(), "other1");
    assert_eq!(run(&store, 1).await.unwrap(), "here1");
}
