//! The payload: what must be equal when the key is.

use std::collections::{BTreeMap, HashMap, HashSet};

use idem::{ErrorKind, MemoryStore, idempotent};
use idem_test_support::{
    Body,
    child::{Args, say},
    child_roles,
};
use serde::{Deserialize, Serialize};
use sqlx::{SqlitePool, SqliteTransaction};

use crate::support::{Failure, Fresh};

child_roles!(repeats);

#[derive(Clone, Serialize, Deserialize)]
struct Tags {
    labels: HashSet<String>,
    by_name: HashMap<String, HashMap<u32, String>>,
}

/// The same cart, filled in one order or the other; hash seeds differ in any case.
fn cart(turned: bool) -> (HashMap<String, u32>, HashSet<u64>, Tags) {
    let mut names = ["a", "b", "c", "d", "e", "f"].map(str::to_owned);
    let mut numbers: Vec<u32> = (0..100).collect();
    if turned {
        names.reverse();
        numbers.reverse();
    }
    let names = || names.iter().cloned();
    let inner: HashMap<u32, String> = numbers.iter().map(|n| (*n, n.to_string())).collect();
    let tags = Tags {
        labels: names().collect(),
        by_name: names().map(|name| (name, inner.clone())).collect(),
    };
    let items = names().map(|name| (name, 1)).collect();
    (items, numbers.into_iter().map(u64::from).collect(), tags)
}

#[idempotent(key = "{no}", ttl = "1h", store = tx)]
async fn order(
    tx: &mut SqliteTransaction<'_>,
    no: u64,
    items: HashMap<String, u32>,
    numbers: HashSet<u64>,
    tags: &Tags,
    body: &Body,
) -> Result<usize, Failure> {
    Ok(body.run().await)
}

async fn order_in(pool: &SqlitePool, turn: bool, body: &Body) -> Result<usize, Failure> {
    let (items, numbers, tags) = cart(turn);
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let answer = order(&mut tx, 1, items, numbers, &tags, body).await?;
    tx.commit().await.unwrap();
    Ok(answer)
}

async fn repeats(args: Args) {
    let pool = SqlitePool::connect(args.get(0)).await.unwrap();
    let body = Body::new();
    let answer = order_in(&pool, true, &body).await;
    say(&format!("{answer:?} {}", body.runs()));
}

#[tokio::test]
async fn key_09_maps_and_sets_are_equal_in_two_processes() {
    let (fresh, body) = (Fresh::new().await, Body::new());
    assert_eq!(order_in(&fresh.pool, false, &body).await.unwrap(), 1);
    assert_eq!(order_in(&fresh.pool, true, &body).await.unwrap(), 1);
    for _ in 0..2 {
        let child = child("repeats").arg(fresh.file.url()).spawn();
        assert_eq!(child.finish().await, ["Ok(1) 0"]);
    }
}

#[derive(Serialize)]
struct Form {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[derive(Serialize)]
struct FormWithNull {
    note: Option<String>,
}

#[idempotent(key = "{no}", ttl = "1h", store = store)]
async fn sent<F: Serialize + Sync>(
    store: &MemoryStore,
    no: u64,
    form: &F,
    body: &Body,
) -> Result<usize, Failure> {
    Ok(body.run().await)
}

/// The same for every type, as a body of JSON is.
#[idempotent(key = "{no}", ttl = "1h", store = store, scope = "sent")]
async fn sent_as<F: Serialize + Sync>(
    store: &MemoryStore,
    no: u64,
    form: &F,
    body: &Body,
) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[tokio::test]
async fn key_09_lists_keep_their_order_and_null_is_not_absent() {
    let (store, body) = (MemoryStore::new(), Body::new());
    let mismatch = |answer: Result<usize, Failure>| {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::FingerprintMismatch);
    };
    sent(&store, 1, &vec![1, 2], &body).await.unwrap();
    sent(&store, 1, &vec![1, 2], &body).await.unwrap();
    mismatch(sent(&store, 1, &vec![2, 1], &body).await);

    let absent = Form { note: None };
    let null = FormWithNull { note: None };
    sent_as(&store, 2, &absent, &body).await.unwrap();
    sent_as(&store, 2, &absent, &body).await.unwrap();
    mismatch(sent_as(&store, 2, &null, &body).await);
    assert_eq!(body.runs(), 2);
}

#[tokio::test]
async fn key_09_the_layout_of_json_does_not_matter() {
    let (store, body) = (MemoryStore::new(), Body::new());
    for text in [
        r#"{"a":1,"b":{"c":[1,2],"d":null}}"#,
        "{ \"b\" : { \"d\": null,\n \"c\": [ 1, 2 ] },\t\"a\": 1 }",
    ] {
        let value: BTreeMap<String, serde_json::Value> = serde_json::from_str(text).unwrap();
        assert_eq!(sent_as(&store, 3, &value, &body).await.unwrap(), 1);
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(sent_as(&store, 3, &value, &body).await.unwrap(), 1);
    }
}

#[derive(Clone, Serialize)]
struct Request {
    order_id: u64,
    amount: i64,
    sent_at: u64,
}

impl Request {
    fn order_id(&self) -> u64 {
        self.order_id
    }

    fn amount(&self) -> i64 {
        self.amount
    }
}

#[derive(Clone, Serialize)]
struct Envelope {
    body: Request,
}

fn envelope(amount: i64, sent_at: u64) -> Envelope {
    let body = Request {
        order_id: 7,
        amount,
        sent_at,
    };
    Envelope { body }
}

#[idempotent(
    key = "{req.body.order_id()}", ttl = "1h", store = store, fingerprint(req.body.amount())
)]
async fn by_method(store: &MemoryStore, req: Envelope, body: &Body) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[idempotent(key = "{req.body.order_id}", ttl = "1h", store = store, fingerprint(req.body.amount))]
async fn by_field(store: &MemoryStore, req: Envelope, body: &Body) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[idempotent(key = "{req.body.order_id}", ttl = "1h", store = store)]
async fn by_default(store: &MemoryStore, req: Envelope, body: &Body) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[idempotent(key = "{req.body.order_id}", ttl = "1h", store = store, fingerprint = none)]
async fn by_nothing(store: &MemoryStore, req: Envelope, body: &Body) -> Result<usize, Failure> {
    Ok(body.run().await)
}

macro_rules! compared {
    ($call:ident, amount: $amount:expr, time: $time:expr) => {{
        let (store, body) = (MemoryStore::new(), Body::new());
        assert_eq!($call(&store, envelope(5, 1), &body).await.unwrap(), 1);
        assert_eq!($call(&store, envelope(5, 1), &body).await.unwrap(), 1);
        for (other, refused) in [(envelope(6, 1), $amount), (envelope(5, 2), $time)] {
            let answer = $call(&store, other, &body).await;
            let kind = answer.err().map(|error| error.kind());
            assert_eq!(kind, refused.then_some(ErrorKind::FingerprintMismatch));
        }
        assert_eq!(body.runs(), 1);
    }};
}

#[tokio::test]
async fn key_12_key_and_payload_name_their_parts_in_one_way() {
    compared!(by_method, amount: true, time: false);
    compared!(by_field, amount: true, time: false);
}

#[tokio::test]
async fn a8_the_payload_is_every_argument_the_chosen_ones_or_none() {
    compared!(by_default, amount: true, time: true);
    compared!(by_nothing, amount: false, time: false);
}

/// Switching the check on or off does not turn recorded calls away.
#[tokio::test]
async fn a8_a_deployment_may_begin_to_compare_and_stop() {
    #[idempotent(key = "{no}", ttl = "1h", store = store, scope = "a8", shared_scope, fingerprint = none)]
    async fn unchecked(store: &MemoryStore, no: u64, n: u8) -> Result<u8, Failure> {
        Ok(n)
    }
    #[idempotent(key = "{no}", ttl = "1h", store = store, scope = "a8", shared_scope)]
    async fn checked(store: &MemoryStore, no: u64, n: u8) -> Result<u8, Failure> {
        Ok(n)
    }
    let store = MemoryStore::new();
    assert_eq!(unchecked(&store, 1, 1).await.unwrap(), 1);
    assert_eq!(checked(&store, 1, 2).await.unwrap(), 1);
    assert_eq!(checked(&store, 2, 2).await.unwrap(), 2);
    assert_eq!(unchecked(&store, 2, 3).await.unwrap(), 2);
    assert!(checked(&store, 2, 3).await.is_err());
}
