//! Outcomes, errors, inference.

use std::error::Error as StdError;

use serde::{Deserialize, Serialize};

use crate::support::{Failure, MemoryStore, Runs, idempotent};

type Boxed = Box<dyn StdError + Send + Sync>;

#[idempotent(key = "{text}", ttl = "1d", store = store)]
async fn boxed(store: &MemoryStore, text: &str) -> Result<u8, Boxed> {
    if text == "empty" {
        return Err("nothing there".into());
    }
    let n: u8 = text.parse()?;
    std::str::from_utf8(&[n])?;
    Ok(n)
}

#[tokio::test]
async fn mac_20_boxed_errors_convert_as_without_the_attribute() {
    let store = MemoryStore::new();
    assert_eq!(boxed(&store, "7").await.unwrap(), 7);
    assert_eq!(
        boxed(&store, "empty").await.unwrap_err().to_string(),
        "nothing there"
    );
    assert!(boxed(&store, "x").await.is_err());
    assert!(boxed(&store, "200").await.is_err());
    assert!(
        boxed(&store, "")
            .await
            .unwrap_err()
            .downcast_ref::<idem::Error>()
            .is_some()
    );
}

/// As in `anyhow`.
#[derive(Debug)]
struct Any(#[allow(dead_code)] Boxed);

impl<E: StdError + Send + Sync + 'static> From<E> for Any {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

mod anyhow_like {
    pub type Result<T, E = super::Any> = std::result::Result<T, E>;
}

#[idempotent(key = "{text}", ttl = "1d", store = store)]
async fn any(store: &MemoryStore, text: &str) -> anyhow_like::Result<u8> {
    let n: u8 = text.parse()?;
    std::str::from_utf8(&[n])?;
    Ok(n)
}

type Answer = Result<Vec<u8>, Failure>;
type Pair<E> = Result<(u8, u8), E>;

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn aliased(store: &MemoryStore, id: u8) -> Answer {
    Ok(vec![id].into_iter().collect())
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn aliased_with_parameter(store: &MemoryStore, id: u8) -> Pair<Failure> {
    Ok((id, id))
}

#[tokio::test]
async fn mac_20_aliases_of_result() {
    let store = MemoryStore::new();
    assert_eq!(any(&store, "7").await.unwrap(), 7);
    assert!(any(&store, "x").await.is_err());
    assert_eq!(aliased(&store, 1).await.unwrap(), [1]);
    assert_eq!(aliased_with_parameter(&store, 1).await.unwrap(), (1, 1));
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u64,
    lines: Vec<String>,
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn defaults(store: &MemoryStore, id: u8) -> Result<Order, Failure> {
    let _ = id;
    Ok(Default::default())
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn early(store: &MemoryStore, id: u8) -> Result<Option<Order>, Failure> {
    if id == 0 {
        return Ok(None);
    }
    for n in 0.. {
        if n == id {
            return Ok(Some(Order::default()));
        }
    }
    Err(Failure::Missing)
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn ends_in_return(store: &MemoryStore, id: u8) -> Result<(), Failure> {
    let _ = id;
    #[allow(clippy::needless_return)]
    return Ok(());
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn never_ends(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    let mut n = id;
    loop {
        n += 1;
        if n > 10 {
            return Ok(n);
        }
    }
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn never_works(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    unimplemented!("{id}")
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn for_ever(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    loop {
        tokio::time::sleep(std::time::Duration::from_secs(u64::from(id))).await;
    }
}

#[tokio::test]
async fn mac_20_inference_goes_on_working() {
    let store = MemoryStore::new();
    assert_eq!(defaults(&store, 1).await.unwrap(), Order::default());
    assert_eq!(early(&store, 0).await.unwrap(), None);
    assert_eq!(early(&store, 1).await.unwrap(), Some(Order::default()));
    ends_in_return(&store, 1).await.unwrap();
    assert_eq!(never_ends(&store, 1).await.unwrap(), 11);
    drop(never_works(&store, 1));
    let timeout = std::time::Duration::from_millis(5);
    assert!(
        tokio::time::timeout(timeout, for_ever(&store, 1))
            .await
            .is_err()
    );
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn items(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    #![allow(clippy::let_and_return)]
    use std::convert::identity;
    const ONE: u8 = 1;
    fn twice(n: u8) -> u8 {
        n * 2
    }
    let n = identity(twice(id)) + ONE;
    n.checked_add(1).ok_or(Failure::Missing)
}

#[tokio::test]
async fn bodies_may_contain_items_and_inner_attributes() {
    assert_eq!(items(&MemoryStore::new(), 1).await.unwrap(), 4);
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Refusal {
    OutOfStock(u8),
    Busy,
    Idem(String),
}

impl From<idem::Error> for Refusal {
    fn from(error: idem::Error) -> Self {
        Self::Idem(error.to_string())
    }
}

impl Refusal {
    fn is_final(&self) -> bool {
        matches!(self, Self::OutOfStock(_))
    }
}

static FINAL: Runs = Runs::new();
static BY_CLOSURE: Runs = Runs::new();
static ALL: Runs = Runs::new();

#[idempotent(key = "{n}", ttl = "1d", store = store, record_err = Refusal::is_final)]
async fn records_final(store: &MemoryStore, n: u8) -> Result<u8, Refusal> {
    FINAL.count();
    Err(if n == 0 {
        Refusal::Busy
    } else {
        Refusal::OutOfStock(n)
    })
}

#[idempotent(key = "{n}", ttl = "1d", store = store, record_err = |error| matches!(error, Refusal::Busy))]
async fn records_by_closure(store: &MemoryStore, n: u8) -> Result<u8, Refusal> {
    BY_CLOSURE.count();
    Err(if n == 0 {
        Refusal::Busy
    } else {
        Refusal::OutOfStock(n)
    })
}

#[idempotent(key = "{n}", ttl = "1d", store = store, record_err = all)]
async fn records_all(store: &MemoryStore, n: u8) -> Result<u8, Refusal> {
    ALL.count();
    Err(if n == 0 {
        Refusal::Busy
    } else {
        Refusal::OutOfStock(n)
    })
}

#[tokio::test]
async fn errors_are_released_unless_they_are_final() {
    let store = MemoryStore::new();
    for _ in 0..2 {
        assert_eq!(records_final(&store, 1).await, Err(Refusal::OutOfStock(1)));
        assert_eq!(records_final(&store, 0).await, Err(Refusal::Busy));
        assert_eq!(
            records_by_closure(&store, 1).await,
            Err(Refusal::OutOfStock(1))
        );
        assert_eq!(records_by_closure(&store, 0).await, Err(Refusal::Busy));
        assert_eq!(records_all(&store, 1).await, Err(Refusal::OutOfStock(1)));
        assert_eq!(records_all(&store, 0).await, Err(Refusal::Busy));
    }
    assert_eq!(FINAL.so_far(), 3);
    assert_eq!(BY_CLOSURE.so_far(), 3);
    assert_eq!(ALL.so_far(), 2);
}
