//! Names, patterns and mutability of arguments.

use crate::support::{Failure, MemoryStore, Request, Runs, idempotent};

#[idempotent(key = "{key}", ttl = "1d", store = store)]
#[allow(clippy::too_many_arguments)]
async fn busy_names(
    key: String,
    result: u8,
    store: &MemoryStore,
    ttl: u8,
    record: u8,
    ctx: u8,
    args: u8,
    self_: u8,
    f: u8,
    run: u8,
    call: u8,
    error: u8,
) -> Result<String, Failure> {
    drop(key.clone());
    let sum = u32::from(result) + u32::from(ttl) + u32::from(record) + u32::from(ctx);
    let more = u32::from(args) + u32::from(self_) + u32::from(f) + u32::from(run);
    let _ = store.len();
    Ok(format!(
        "{key}{}",
        sum + more + u32::from(call) + u32::from(error)
    ))
}

#[tokio::test]
async fn mac_01_arguments_may_have_the_names_that_generated_code_uses() {
    let store = MemoryStore::new();
    let call = || busy_names("k".into(), 1, &store, 2, 3, 4, 5, 6, 7, 8, 9, 10);
    assert_eq!(call().await.unwrap(), "k55");
    assert_eq!(call().await.unwrap(), "k55");
}

#[idempotent(key = "{key}:{req.order_no}", ttl = "1d", store = store)]
async fn moves(store: &MemoryStore, key: String, req: Request) -> Result<(String, i64), Failure> {
    let moved = key;
    let Request { cents, .. } = req;
    Ok((moved, cents))
}

#[tokio::test]
async fn mac_01_the_body_may_move_what_the_key_reads() {
    let store = MemoryStore::new();
    let call = || moves(&store, "k".into(), Request::new("m", "1", 7));
    assert_eq!(call().await.unwrap(), ("k".to_owned(), 7));
    assert!(idem::observe(call()).await.1.replayed());
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn changes(store: &MemoryStore, mut id: u64, mut list: Vec<u8>) -> Result<u64, Failure> {
    id += 1;
    list.push(1);
    tokio::task::yield_now().await;
    Ok(id + list.len() as u64)
}

#[tokio::test]
async fn mac_02_the_key_is_that_of_entry_when_the_body_changes_the_argument() {
    let store = MemoryStore::new();
    assert_eq!(changes(&store, 5, vec![]).await.unwrap(), 7);
    assert!(idem::observe(changes(&store, 5, vec![])).await.1.replayed());
    assert!(!idem::observe(changes(&store, 6, vec![])).await.1.replayed());
}

struct Path<T>(T);
struct Point {
    x: u8,
    y: u8,
}
struct Ids {
    id: u64,
    #[allow(dead_code)]
    rest: u8,
}

#[idempotent(key = "{id}-{a}-{x}-{first}-{r}-{n}", ttl = "1d", store = *store)]
#[allow(clippy::too_many_arguments, clippy::toplevel_ref_arg)]
async fn patterns(
    Path(store): Path<&MemoryStore>,
    (a, b): (u8, u8),
    Ids { id, .. }: Ids,
    [first, second]: [u8; 2],
    _: Vec<u8>,
    _unused: u8,
    ref r: String,
    ((n, _), Point { x, y: renamed }): ((u8, u8), Point),
    whole @ Point { .. }: Point,
) -> Result<u64, Failure> {
    let _ = store.len();
    let sum = u64::from(a) + u64::from(b) + id + u64::from(first) + u64::from(second);
    Ok(
        sum + r.len() as u64
            + u64::from(n)
            + u64::from(x)
            + u64::from(renamed)
            + u64::from(whole.y),
    )
}

#[tokio::test]
async fn mac_03_names_bound_by_patterns_are_names_of_the_key() {
    let store = MemoryStore::new();
    let call = |n, ignored: u8| {
        let nested = ((n, 0), Point { x: 1, y: 1 });
        patterns(
            Path(&store),
            (1, 1),
            Ids { id: 1, rest: 0 },
            [1, 1],
            vec![ignored],
            0,
            "r".into(),
            nested,
            Point { x: 0, y: 1 },
        )
    };
    assert_eq!(call(1, 0).await.unwrap(), 10);
    assert!(
        idem::observe(call(1, 9)).await.1.replayed(),
        "`_` is no part of the payload"
    );
    assert!(!idem::observe(call(2, 0)).await.1.replayed());
}

#[idempotent(key = "{a}:{b}", ttl = "1d", store = store)]
async fn through_references(
    store: &MemoryStore,
    (a, b): &(u8, String),
    [c, ..]: &[u8; 3],
    &d: &u8,
) -> Result<u8, Failure> {
    Ok(a + c + d + u8::try_from(b.len()).unwrap_or(0))
}

#[tokio::test]
async fn mac_03_patterns_look_through_references() {
    let store = MemoryStore::new();
    let pair = (1, "x".to_owned());
    assert_eq!(
        through_references(&store, &pair, &[1, 2, 3], &1)
            .await
            .unwrap(),
        4
    );
}

#[idempotent(key = "{r#type}", ttl = "1d", store = store)]
async fn raw_names(store: &MemoryStore, r#type: u8) -> Result<u8, Failure> {
    Ok(r#type)
}

#[tokio::test]
async fn mac_03_raw_identifiers() {
    assert_eq!(raw_names(&MemoryStore::new(), 3).await.unwrap(), 3);
}

static IGNORING: Runs = Runs::new();

#[idempotent(key = "k", singleton, ttl = "1d", store = store)]
async fn ignoring(store: &MemoryStore, _a: u8, _: u8) -> Result<usize, Failure> {
    Ok(IGNORING.count())
}

#[tokio::test]
async fn key_11_a_singleton_runs_once_for_ever() {
    let store = MemoryStore::new();
    assert_eq!(ignoring(&store, 1, 1).await.unwrap(), 1);
    assert_eq!(ignoring(&store, 1, 2).await.unwrap(), 1);
    assert_eq!(IGNORING.so_far(), 1);
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn some_are_compiled_out(
    store: &MemoryStore,
    id: u8,
    #[cfg(any())] absent: Request,
    #[cfg(not(any()))] present: u8,
) -> Result<u8, Failure> {
    Ok(id + present)
}

#[tokio::test]
async fn mac_13_arguments_may_be_compiled_out() {
    assert_eq!(
        some_are_compiled_out(&MemoryStore::new(), 1, 2)
            .await
            .unwrap(),
        3
    );
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn takes_the_store(store: MemoryStore, id: u8, mut text: String) -> Result<String, Failure> {
    // The store stays usable; only moving it away is refused.
    let here = store.len();
    text.push_str(&here.to_string());
    tokio::task::yield_now().await;
    Ok(format!("{text}{id}"))
}

#[tokio::test]
async fn a_store_may_be_taken_by_value() {
    let store = MemoryStore::new();
    let call = || takes_the_store(store.clone(), 1, "a".into());
    assert_eq!(call().await.unwrap(), "a11");
    assert_eq!(call().await.unwrap(), "a11");
}

#[idempotent(key = "{id}", ttl = "1d", store = store)]
async fn takes_the_store_mutably(mut store: MemoryStore, id: u8) -> Result<u8, Failure> {
    store = store.clone();
    Ok(id + u8::try_from(store.len()).unwrap_or(0))
}

#[tokio::test]
async fn a_store_may_be_taken_by_value_and_changed() {
    assert_eq!(
        takes_the_store_mutably(MemoryStore::new(), 1)
            .await
            .unwrap(),
        2
    );
}
