//! Keys and fingerprints.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use crate::support::{ErrorKind, Failure, MemoryStore, Request, idempotent};

#[idempotent(key = "{a}:{b}", ttl = "1d", store = store)]
async fn pair(store: &MemoryStore, a: &str, b: &str) -> Result<String, Failure> {
    Ok(format!("{a}|{b}"))
}

#[tokio::test]
async fn key_01_separators_inside_values_never_make_two_calls_one() {
    let store = MemoryStore::new();
    let values = [
        "x", "x:y", "y:z", "%", "%3A", ":", "::", "{", "}", "a\nb", "ä", "%%3A", "x%3Ay",
    ];
    let mut seen = HashSet::new();
    for a in values {
        for b in values {
            let (answer, observed) = idem::observe(pair(&store, a, b)).await;
            assert!(!observed.replayed(), "{a:?} {b:?}");
            assert!(seen.insert(answer.unwrap()));
        }
    }
}

#[tokio::test]
async fn key_02_an_empty_part_is_refused_before_the_body() {
    let store = MemoryStore::new();
    let error = pair(&store, "", "b").await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::EmptyKeyPart));
    assert_eq!(store.len(), 0);
}

#[idempotent(key = "order/{{{req.merchant}}}/{req.order_no}", ttl = "1d", store = store)]
async fn template(store: &MemoryStore, req: Request) -> Result<i64, Failure> {
    Ok(req.cents)
}

#[idempotent(key("order", req.merchant, req.order_no), ttl = "1d", store = store, scope = "forms", shared_scope)]
async fn tokens(store: &MemoryStore, req: Request) -> Result<i64, Failure> {
    Ok(req.cents)
}

#[idempotent(
    key = "order:{req.merchant}:{req.order_no}",
    ttl = "1d",
    store = "store",
    scope = "forms",
    shared_scope
)]
async fn text(store: &MemoryStore, req: Request) -> Result<i64, Failure> {
    Ok(req.cents + 1)
}

#[tokio::test]
async fn doubled_braces_are_braces() {
    let store = MemoryStore::new();
    template(&store, Request::new("m", "1", 1)).await.unwrap();
    let id = idem::observe(template(&store, Request::new("m", "1", 1)))
        .await
        .1;
    use idem::store::Store as _;
    let stored = store
        .lookup(id.record_id().unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(stored.key_text.as_deref(), Some("order/{m}/1"));
}

#[tokio::test]
async fn key_05_the_scope_is_the_identity_and_both_forms_give_one_key() {
    let store = MemoryStore::new();
    assert_eq!(tokens(&store, Request::new("m", "1", 1)).await.unwrap(), 1);
    assert_eq!(text(&store, Request::new("m", "1", 1)).await.unwrap(), 1);
}

#[tokio::test]
async fn key_11_another_payload_under_the_same_key_is_refused() {
    let store = MemoryStore::new();
    assert_eq!(tokens(&store, Request::new("m", "1", 1)).await.unwrap(), 1);
    let error = tokens(&store, Request::new("m", "1", 2)).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::FingerprintMismatch));
}

#[derive(Serialize)]
struct Body {
    order: Request,
    note: String,
}

impl Body {
    fn amount(&self) -> i64 {
        self.order.cents
    }
}

#[idempotent(key = "{body.order.id()}", fingerprint(body.amount(), body.order.merchant), ttl = "1d", store = store)]
async fn nested(store: &MemoryStore, body: Body) -> Result<String, Failure> {
    Ok(body.note)
}

#[idempotent(key = "{body.order.id()}", fingerprint = "body.amount(), body.order.merchant", ttl = "1d", store = store)]
async fn nested_text(store: &MemoryStore, body: Body) -> Result<String, Failure> {
    Ok(body.note)
}

fn body(order_no: &str, cents: i64, note: &str) -> Body {
    Body {
        order: Request::new("m", order_no, cents),
        note: note.to_owned(),
    }
}

#[tokio::test]
async fn key_12_key_and_fingerprint_share_one_grammar() {
    let store = MemoryStore::new();
    assert_eq!(
        nested(&store, body("1", 1, "first")).await.unwrap(),
        "first"
    );
    assert_eq!(
        nested(&store, body("1", 1, "again")).await.unwrap(),
        "first"
    );
    let error = nested(&store, body("1", 2, "more")).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::FingerprintMismatch));
    assert_eq!(
        nested_text(&store, body("1", 1, "text")).await.unwrap(),
        "text"
    );
}

#[idempotent(key = "{id}", fingerprint = none, ttl = "1d", store = store)]
async fn unchecked(store: &MemoryStore, id: u8, note: &str) -> Result<String, Failure> {
    let _ = id;
    Ok(note.to_owned())
}

#[idempotent(key = "{id}", fingerprint = "none", ttl = "1d", store = store)]
async fn unchecked_text(store: &MemoryStore, id: u8, note: &str) -> Result<String, Failure> {
    let _ = id;
    Ok(note.to_owned())
}

#[tokio::test]
async fn no_payload_is_compared_when_none_is_chosen() {
    let store = MemoryStore::new();
    assert_eq!(unchecked(&store, 1, "a").await.unwrap(), "a");
    assert_eq!(unchecked(&store, 1, "b").await.unwrap(), "a");
    assert_eq!(unchecked_text(&store, 1, "c").await.unwrap(), "c");
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn maps(store: &MemoryStore, id: u8, map: HashMap<String, u8>) -> Result<usize, Failure> {
    let _ = id;
    Ok(map.len())
}

#[tokio::test]
async fn key_09_the_order_of_a_map_is_no_part_of_the_payload() {
    let store = MemoryStore::new();
    let pairs: Vec<(String, u8)> = (0..6).map(|n| (format!("k{n}"), n)).collect();
    let forwards: HashMap<_, _> = pairs.iter().cloned().collect();
    let backwards: HashMap<_, _> = pairs.iter().rev().cloned().collect();
    assert_eq!(maps(&store, 1, forwards).await.unwrap(), 6);
    assert!(idem::observe(maps(&store, 1, backwards)).await.1.replayed());
}

struct NotSerialize(u8);

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn not_fed(store: &MemoryStore, id: u8, dependency: &NotSerialize) -> Result<u8, Failure> {
    let _ = id;
    Ok(dependency.0)
}

#[tokio::test]
async fn arguments_that_do_not_serialise_are_no_part_of_the_payload() {
    let store = MemoryStore::new();
    assert_eq!(not_fed(&store, 1, &NotSerialize(1)).await.unwrap(), 1);
    assert_eq!(not_fed(&store, 1, &NotSerialize(2)).await.unwrap(), 1);
}

#[derive(Clone, Copy, Serialize)]
struct Context<'a> {
    #[serde(skip)]
    store: &'a MemoryStore,
    trace: u8,
}

#[idempotent(key = "{id}", ttl = "1d", store = *cx.store)]
async fn in_context(cx: Context<'_>, id: u8) -> Result<u8, Failure> {
    let _ = id;
    Ok(cx.trace)
}

#[tokio::test]
async fn the_argument_that_holds_the_store_is_no_part_of_the_payload() {
    let store = MemoryStore::new();
    let cx = |trace| Context {
        store: &store,
        trace,
    };
    assert_eq!(in_context(cx(1), 1).await.unwrap(), 1);
    assert_eq!(in_context(cx(2), 1).await.unwrap(), 1);
}
