//! Type, lifetime and const parameters.

use std::fmt::{Debug, Display};

use idem::KeyPart;
use serde::{Serialize, de::DeserializeOwned};

use crate::support::{Failure, MemoryStore, Request, idempotent};

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn arrays<T, const N: usize>(store: &MemoryStore, id: u8, x: [T; N]) -> Result<usize, Failure>
where
    T: Debug + Send + Sync,
{
    let _ = id;
    Ok(format!("{x:?}").len() + N)
}

#[tokio::test]
async fn mac_04_type_and_const_parameters_and_where_clauses() {
    let store = MemoryStore::new();
    assert_eq!(arrays::<u8, 2>(&store, 1, [1, 2]).await.unwrap(), 8);
    assert_eq!(arrays(&store, 1, ["x"]).await.unwrap(), 6);
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn echo<T: Serialize + DeserializeOwned + Send>(
    store: &MemoryStore,
    id: u8,
    value: T,
) -> Result<T, Failure> {
    let _ = id;
    Ok(value)
}

#[tokio::test]
async fn key_04_every_type_argument_is_an_operation_of_its_own() {
    let store = MemoryStore::new();
    assert_eq!(echo(&store, 1, 7u8).await.unwrap(), 7);
    assert_eq!(echo(&store, 1, "x".to_owned()).await.unwrap(), "x");
    assert_eq!(echo::<u64>(&store, 1, 9).await.unwrap(), 9);
}

#[tokio::test]
async fn a_bound_of_serialize_puts_a_generic_argument_into_the_payload() {
    let store = MemoryStore::new();
    echo(&store, 1, 7u8).await.unwrap();
    let error = echo(&store, 1, 8u8).await.unwrap_err();
    assert_eq!(error.kind(), Some(idem::ErrorKind::FingerprintMismatch));
}

#[idempotent(key = "{key}", ttl = "1d", store = store)]
async fn opaque(
    store: &MemoryStore,
    key: impl KeyPart + Display + Send,
    notify: impl Fn(&str) -> usize + Send,
) -> Result<usize, Failure> {
    Ok(notify(&key.to_string()))
}

#[tokio::test]
async fn mac_04_impl_trait_arguments() {
    let store = MemoryStore::new();
    assert_eq!(opaque(&store, 12u8, str::len).await.unwrap(), 2);
    assert_eq!(opaque(&store, "12", str::len).await.unwrap(), 2);
    assert_eq!(
        opaque(&store, "1234".to_owned(), |s| s.len() + 1)
            .await
            .unwrap(),
        5
    );
}

#[idempotent(key = "{name}:{req.order_no}", ttl = "1d", store = store)]
async fn lifetimes<'a, 'b: 'a>(
    store: &MemoryStore,
    name: &'a str,
    req: &'b Request,
    others: Option<&'a [&'b str]>,
) -> Result<String, Failure> {
    let picked: &'a str = others
        .and_then(|others| others.first().copied())
        .unwrap_or(name);
    Ok(format!("{picked}{}", req.cents))
}

#[tokio::test]
async fn mac_08_arguments_may_borrow() {
    let store = MemoryStore::new();
    let req = Request::new("m", "1", 5);
    let name = String::from("n");
    assert_eq!(lifetimes(&store, &name, &req, None).await.unwrap(), "n5");
    assert_eq!(lifetimes(&store, &name, &req, None).await.unwrap(), "n5");
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn higher_ranked<F>(store: &MemoryStore, id: u8, f: F) -> Result<usize, Failure>
where
    F: for<'a> Fn(&'a str) -> &'a str + Send + Sync,
{
    let _ = id;
    tokio::task::yield_now().await;
    Ok(f("abc").len())
}

#[tokio::test]
async fn mac_04_higher_ranked_bounds() {
    assert_eq!(
        higher_ranked(&MemoryStore::new(), 1, |s| &s[1..])
            .await
            .unwrap(),
        2
    );
}

#[derive(Clone)]
struct Repository<T, const SHARD: u8 = 0> {
    store: MemoryStore,
    label: T,
}

impl<T: Display + Clone + Send + Sync, const SHARD: u8> Repository<T, SHARD> {
    #[idempotent(key = "{id}", ttl = "1d", store = self.store)]
    async fn save<I>(&self, id: I, rows: Vec<u8>) -> Result<String, Failure>
    where
        I: KeyPart + Display + Send + Sync,
    {
        Ok(format!("{}{SHARD}{id}{}", self.label, rows.len()))
    }
}

#[tokio::test]
async fn key_04_the_type_of_self_belongs_to_the_operation() {
    let store = MemoryStore::new();
    let a = Repository::<_, 1> {
        store: store.clone(),
        label: "a",
    };
    let b = Repository::<_, 1> {
        store: store.clone(),
        label: 5u8,
    };
    let c = Repository::<_, 2> { store, label: "c" };
    assert_eq!(a.save(1u8, vec![]).await.unwrap(), "a110");
    assert_eq!(b.save(1u8, vec![]).await.unwrap(), "5110");
    assert_eq!(c.save(1u8, vec![]).await.unwrap(), "c210");
    assert_eq!(a.save("1", vec![]).await.unwrap(), "a110");
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn generic_store<S: idem::store::Store>(store: &S, id: u8) -> Result<u8, Failure> {
    Ok(id)
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn opaque_store(store: impl idem::store::Store, id: u8) -> Result<u8, Failure> {
    let _ = store.namespace();
    Ok(id)
}

#[tokio::test]
async fn mac_04_the_store_may_be_generic() {
    let store = MemoryStore::new();
    assert_eq!(generic_store(&store, 1).await.unwrap(), 1);
    assert_eq!(
        generic_store(&std::sync::Arc::new(store.clone()), 1)
            .await
            .unwrap(),
        1
    );
    assert_eq!(opaque_store(store, 2).await.unwrap(), 2);
}
