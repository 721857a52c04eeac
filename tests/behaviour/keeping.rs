//! A small part of the answer is recorded, and the whole is made from it again.

use std::sync::Mutex;

use idem::{ErrorKind, MemoryStore, idempotent, observe, store::Store as _};
use idem_test_support::Body;
use serde::{Deserialize, Serialize};
use sqlx::{SqlitePool, SqliteTransaction};

use crate::support::{Failure, Fresh, committed, write};

/// Not `Serialize`: only its number is recorded.
#[derive(Clone, Debug, PartialEq)]
struct Order {
    no: u64,
    lines: Vec<String>,
}

impl Order {
    fn no(&self) -> u64 {
        self.no
    }
}

#[derive(Default)]
struct Orders(Mutex<Vec<Order>>);

impl Orders {
    async fn load(&self, no: u64) -> Result<Order, Failure> {
        tokio::task::yield_now().await;
        let orders = self.0.lock().unwrap();
        let found = orders.iter().find(|order| order.no == no);
        found.cloned().ok_or(Failure::Busy)
    }

    fn add(&self, no: u64, line: &str) -> Order {
        let order = Order {
            no,
            lines: vec![line.to_owned()],
        };
        self.0.lock().unwrap().push(order.clone());
        order
    }
}

#[idempotent(
    key = "{line}", ttl = "1h", store = store, max_outcome = "8B",
    keep = |order: &Order| order.no, rebuild = orders.load(kept)
)]
async fn create(
    store: &MemoryStore,
    line: String,
    orders: &Orders,
    body: &Body,
) -> Result<Order, Failure> {
    Ok(orders.add(body.run().await as u64, &line))
}

#[tokio::test]
async fn a11_the_answer_is_rebuilt_from_what_is_kept() {
    let (store, orders, body) = (MemoryStore::new(), Orders::default(), Body::new());
    let first = create(&store, "a".to_owned(), &orders, &body).await;
    let first = first.unwrap();
    let (again, seen) = observe(create(&store, "a".to_owned(), &orders, &body)).await;
    assert_eq!(again.unwrap(), first);
    assert!(seen.replayed());

    let stored = store.lookup(seen.record_id().unwrap()).await.unwrap();
    let shown = format!("{:?}", stored.unwrap().record.state);
    assert!(shown.contains(r"\0\0\0\01"), "{shown}");

    // The order as it is now.
    orders.0.lock().unwrap()[0].lines.push("b".to_owned());
    let now = create(&store, "a".to_owned(), &orders, &body).await;
    assert_eq!(now.unwrap().lines, ["a", "b"]);
    // What is gone cannot be rebuilt, and is not made anew.
    orders.0.lock().unwrap().clear();
    let gone = create(&store, "a".to_owned(), &orders, &body).await;
    assert!(matches!(gone, Err(Failure::Busy)));
    assert_eq!(body.runs(), 1);
}

/// A part that does not read back equal.
#[derive(Serialize, Deserialize, PartialEq)]
struct Part {
    #[serde(skip)]
    no: u64,
}

#[idempotent(
    key = "{no}", ttl = "1h", store = store, record_err = all,
    keep = |no| Part { no: *no }, rebuild = "async { Ok::<_, Failure>(kept.no) }"
)]
async fn unequal(store: &MemoryStore, no: u64) -> Result<u64, Failure> {
    if no == 0 { Err(Failure::Busy) } else { Ok(no) }
}

#[tokio::test]
async fn a11_what_is_kept_is_checked_and_errors_are_recorded_as_ever() {
    let store = MemoryStore::new();
    let failure = unequal(&store, 1).await.unwrap_err();
    assert_eq!(failure.kind(), ErrorKind::OutcomeNotRecordable);
    for _ in 0..2 {
        let (answer, _) = observe(unequal(&store, 0)).await;
        assert!(matches!(answer, Err(Failure::Busy)));
    }
    assert_eq!(store.len(), 2);
}

async fn load(tx: &mut SqliteTransaction<'_>, no: u64) -> Result<Order, sqlx::Error> {
    let lines = sqlx::query_scalar("SELECT what FROM effect")
        .fetch_all(&mut **tx)
        .await?;
    Ok(Order { no, lines })
}

/// A path as the part; an error of another type, converted as by `?`; a backstop beside them.
#[idempotent(
    key = "{no}", ttl = "1h", store = tx, keep = Order::no, rebuild = load(tx, kept),
    backstop = async { Ok::<_, Failure>((no == 9).then(|| Order { no, lines: Vec::new() })) }
)]
async fn create_in(tx: &mut SqliteTransaction<'_>, no: u64, body: &Body) -> Result<Order, Failure> {
    body.run().await;
    write(tx, "line").await?;
    Ok(load(tx, no).await?)
}

struct Shop {
    pool: SqlitePool,
}

impl Shop {
    async fn load(&self, no: u64) -> Result<Order, Failure> {
        let lines = sqlx::query_scalar("SELECT what FROM effect")
            .fetch_all(&self.pool)
            .await?;
        Ok(Order { no, lines })
    }

    #[idempotent(
        key = "{no}", ttl = "1h", store = self.pool, tx = tx, keep = "Order::no",
        rebuild = "self.load(kept)"
    )]
    async fn create(&self, no: u64) -> Result<Order, Failure> {
        write(tx, "line").await?;
        Ok(load(tx, no).await?)
    }

    #[idempotent(
        key = "{no}", ttl = "1h", store = self.pool, tx = tx, retry = 2, keep = Order::no,
        rebuild = self.load(kept)
    )]
    async fn create_retried(&self, no: u64) -> Result<Order, Failure> {
        write(tx, "line").await?;
        Ok(load(tx, no).await?)
    }
}

#[tokio::test]
async fn a11_in_a_transaction_it_is_rebuilt_there() {
    let (fresh, body) = (Fresh::new().await, Body::new());
    let first = committed!(fresh, tx => create_in(tx, 1, &body)).unwrap();
    let again = committed!(fresh, tx => create_in(tx, 1, &body)).unwrap();
    assert_eq!(first, again);
    let known = committed!(fresh, tx => create_in(tx, 9, &body)).unwrap();
    assert_eq!(known.lines.len(), 0);
    let known = committed!(fresh, tx => create_in(tx, 9, &body)).unwrap();
    assert_eq!((known.no, known.lines.len()), (9, 1));
    assert_eq!((body.runs(), fresh.effects().await), (1, 1));
}

#[tokio::test]
async fn a11_in_the_frameworks_transaction_it_is_rebuilt_from_the_pool() {
    let fresh = Fresh::new().await;
    let shop = Shop {
        pool: fresh.pool.clone(),
    };
    for no in 1..=2 {
        let create = || async {
            match no {
                1 => shop.create(no).await,
                _ => shop.create_retried(no).await,
            }
        };
        // The second waits for the first and is answered inside the process.
        let (first, second) = tokio::join!(create(), create());
        assert_eq!(first.unwrap(), second.unwrap());
        create().await.unwrap();
    }
    assert_eq!(fresh.effects().await, 2);
}

#[tokio::test]
async fn a11_the_future_is_send() {
    let (store, orders, body) = (MemoryStore::new(), Orders::default(), Body::new());
    let call = async move { create(&store, "a".to_owned(), &orders, &body).await };
    assert_eq!(tokio::spawn(call).await.unwrap().unwrap().no, 1);
}
