//! The companion of a function (`companion = name`): the same record as the call itself, whatever the
//! key is made of, and what the record says.

use std::borrow::Cow;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use idem::key::RecordId;
use idem::retention::Left;
use idem::status::{self, CallRef, Completed, Status};
use idem::store::Store as _;
use idem::testing::clock::ManualClock;
use idem::{Effect, ErrorKind, KeyPart, MemoryStore, idempotent, observe};
use idem_test_support::Body;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::support::Failure;

/// The record that a call used.
async fn record<T>(call: impl Future<Output = Result<T, Failure>>) -> RecordId {
    let (answer, seen) = observe(call).await;
    assert!(answer.is_ok(), "{:?}", answer.err());
    seen.record_id().unwrap()
}

fn asked<T, E>(call: Result<CallRef<T, E>, idem::Error>) -> RecordId {
    call.unwrap().record_id("")
}

#[derive(Clone, Serialize)]
struct Request {
    tenant: String,
    no: u64,
}

impl Request {
    fn tenant(&self) -> &str {
        &self.tenant
    }
}

fn request(tenant: &str) -> Request {
    Request {
        tenant: tenant.to_owned(),
        no: 7,
    }
}

#[derive(Clone, Copy, KeyPart, Serialize)]
enum Channel {
    Card,
}

macro_rules! kinds {
    ($($function:ident / $companion:ident ($($name:ident: $ty:ty = $value:expr),+) $key:literal;)+) => {
        $(
            #[idempotent(key = $key, ttl = "1h", store = store, companion = $companion, fingerprint = none)]
            async fn $function(store: &MemoryStore, $($name: $ty),+) -> Result<u8, Failure> {
                $(let _ = &$name;)+
                Ok(1)
            }
        )+

        #[tokio::test]
        async fn every_kind_of_key_part_gives_the_record_of_the_call() {
            let store = MemoryStore::new();
            let mut seen = HashMap::new();
            $({
                let values = || ($($value,)+);
                let ($($name,)+) = values();
                let used = record($function(&store, $($name),+)).await;
                let ($($name,)+) = values();
                assert_eq!(asked($companion($(kinds!(@by_ref $name: $ty)),+)), used, stringify!($function));
                assert_eq!(seen.insert(used, stringify!($function)), None);
            })+
        }
    };
    (@by_ref $name:ident: &$($ty:tt)+) => { $name };
    (@by_ref $name:ident: $($ty:tt)+) => { kinds!(@borrow $name) };
    (@borrow $name:ident) => { &$name };
}

type Text = &'static str;

kinds! {
    by_int / by_int_call (no: u64 = 7) "{no}";
    by_negative / by_negative_call (no: i128 = -7) "{no}";
    by_nonzero / by_nonzero_call (no: std::num::NonZeroU8 = std::num::NonZeroU8::MIN) "{no}";
    by_char / by_char_call (c: char = ':') "a:{c}:b";
    by_bool / by_bool_call (on: bool = true) "{on}";
    by_string / by_string_call (text: String = "a:b%".to_owned()) "{text}";
    by_bytes / by_bytes_call (id: [u8; 4] = [0, 1, 2, 255]) "{id}";
    by_cow / by_cow_call (text: Cow<'static, str> = Cow::Borrowed("x y")) "{text}";
    by_box / by_box_call (text: Box<str> = "boxed".into()) "{text}";
    by_arc / by_arc_call (text: Arc<String> = Arc::new("shared".to_owned())) "{text}";
    by_uuid / by_uuid_call (id: uuid::Uuid = uuid::Uuid::from_u128(77)) "{id}";
    by_decimal / by_decimal_call (cents: rust_decimal::Decimal = rust_decimal::Decimal::new(1000, 2)) "{cents}";
    by_date / by_date_call (day: chrono::NaiveDate = chrono::NaiveDate::MIN) "{day}";
    by_derive / by_derive_call (channel: Channel = Channel::Card) "{channel}";
    by_field / by_field_call (req: Request = request("t")) "{req.tenant}:{req.no}";
    by_method / by_method_call (req: Request = request("t")) "{req.tenant()}:{req.no}";
    by_tuple / by_tuple_call (pair: (u8, String) = (1, "a".to_owned())) "{pair.0}:{pair.1}";
    by_two / by_two_call (a: String = "a:".to_owned(), b: u64 = 2) "x:{a}:{b}";
}

#[idempotent(key = "{text}:{no}", ttl = "1h", store = store, companion = borrowed_call)]
async fn borrowed(
    no: &u64,
    store: &MemoryStore,
    text: &str,
    payload: String,
) -> Result<u8, Failure> {
    Ok(1)
}

#[idempotent(key = "{a}:{b}:{c}:{d}:{e}", ttl = "1h", store = store, companion = taken_apart_call)]
async fn taken_apart(
    store: &MemoryStore,
    (mut a, ref b): (u64, String),
    &(c, _): &(u8, u8),
    Request { tenant: d, .. }: Request,
    mut e: Text,
    unused: Vec<u8>,
) -> Result<u64, Failure> {
    a += unused.len() as u64 + u64::from(c);
    let was = e;
    e = b;
    Ok(a + (was.len() + e.len() + d.len()) as u64)
}

#[idempotent(key = "{no}", ttl = "1h", store = store, companion = exclusive_call, fingerprint = none)]
async fn exclusive(store: &MemoryStore, no: &mut u64) -> Result<u64, Failure> {
    *no += 1;
    Ok(*no)
}

#[idempotent(key = "{no}:{a}", ttl = "1h", store = store, companion = through_exclusive_call, fingerprint = none)]
async fn through_exclusive(
    store: &MemoryStore,
    &mut no: &mut u64,
    &mut (mut a, _): &mut (u64, u64),
) -> Result<u64, Failure> {
    a += no;
    Ok(a)
}

#[tokio::test]
async fn arguments_are_taken_by_reference_whatever_they_are_and_only_those_of_the_key() {
    let store = MemoryStore::new();
    let used = record(borrowed(&7, &store, "t", String::new())).await;
    assert_eq!(asked(borrowed_call(&7, "t")), used);
    let taken = (1, "b".to_owned());
    let used = record(taken_apart(
        &store,
        taken.clone(),
        &(3, 4),
        request("d"),
        "e",
        vec![],
    ))
    .await;
    let call = taken_apart_call(&taken, &(3, 4), &request("d"), &"e");
    // `&'static str` is a reference already.
    let _: &CallRef<u64, Failure> = call.as_ref().unwrap();
    assert_eq!(asked(call), used);
    let used = record(exclusive(&store, &mut 5)).await;
    assert_eq!(asked(exclusive_call(&5)), used);
    let used = record(through_exclusive(&store, &mut 5, &mut (6, 7))).await;
    assert_eq!(asked(through_exclusive_call(&5, &(6, 7))), used);
}

#[idempotent(key = "{no}", ttl = "1h", store = store, companion = generic_call, fingerprint = none)]
async fn generic<A, const N: usize>(
    store: &MemoryStore,
    no: u64,
    with: [A; N],
) -> Result<u8, Failure>
where
    A: Send + Sync,
{
    let _ = with;
    Ok(1)
}

#[idempotent(key = "{no}", ttl = "1h", store = store, companion = opaque_call, fingerprint = none)]
async fn opaque(
    store: &MemoryStore,
    no: impl KeyPart + Send + Sync,
    with: impl Send + Sync,
) -> Result<u8, Failure> {
    let _ = with;
    Ok(1)
}

#[idempotent(key = "{no}", ttl = "1h", store = store, companion = named_call, scope = "companion.named", fingerprint = none)]
async fn named<A: Send + Sync>(
    store: &MemoryStore,
    no: u64,
    with: A,
    more: impl Send + Sync,
) -> Result<u8, Failure> {
    let _ = (with, more);
    Ok(1)
}

#[tokio::test]
async fn type_arguments_are_part_of_a_derived_identity() {
    let store = MemoryStore::new();
    let used = record(generic(&store, 1, [1_u8])).await;
    assert_eq!(asked(generic_call::<u8, 1>(&1)), used);
    assert_ne!(asked(generic_call::<u16, 1>(&1)), used);
    let used = record(opaque(&store, 1_u8, "x")).await;
    assert_eq!(asked(opaque_call(&1_u8, &"x")), used);
    assert_ne!(asked(opaque_call(&1_u16, &"x")), used);
    assert_ne!(asked(opaque_call(&1_u8, &'x')), used);
    // The name is the identity: nothing but the key is asked for.
    let used = record(named(&store, 1, 'x', "y")).await;
    assert_eq!(asked(named_call::<char>(&1)), used);
    assert_eq!(asked(named_call::<u8>(&1)), used);
}

struct Service<T> {
    store: MemoryStore,
    tenant: T,
}

impl<T: KeyPart + Send + Sync + Clone> Service<T> {
    #[idempotent(key = "{self.tenant}:{no}", ttl = "1h", store = self.store, companion = by_ref_call, fingerprint = none)]
    async fn by_ref(&self, no: u64) -> Result<u8, Failure> {
        Ok(1)
    }

    #[idempotent(key = "{no}", ttl = "1h", store = self.store, companion = without_self_call, fingerprint = none)]
    async fn without_self(&self, no: u64) -> Result<u8, Failure> {
        Ok(1)
    }

    #[idempotent(key = "{self.tenant}", ttl = "1h", store = self.store, companion = "by_arc_call", fingerprint = none)]
    async fn by_arc(self: Arc<Self>) -> Result<u8, Failure> {
        Ok(1)
    }

    #[idempotent(key = "{self.tenant}:{no}", ttl = "1h", store = self.store, companion = by_pin_call, fingerprint = none)]
    async fn by_pin(self: Pin<&mut Self>, no: u64) -> Result<u8, Failure> {
        Ok(1)
    }

    #[idempotent(key = "{self.tenant}", ttl = "1h", store = &self.store, companion = by_value_call, fingerprint = none)]
    async fn by_value(mut self) -> Result<u8, Failure> {
        self.store = MemoryStore::new();
        Ok(1)
    }

    #[idempotent(key = "{no}", ttl = "1h", store = store, companion = r#await, fingerprint = none)]
    async fn r#type(store: &MemoryStore, no: u64) -> Result<u8, Failure> {
        Ok(1)
    }
}

#[tokio::test]
async fn methods_of_every_kind() {
    let service = |tenant| Service {
        store: MemoryStore::new(),
        tenant,
    };
    let one = service("t".to_owned());
    let used = record(one.by_ref(1)).await;
    assert_eq!(asked(one.by_ref_call(&1)), used);
    let used = record(one.without_self(1)).await;
    assert_eq!(asked(Service::<String>::without_self_call(&1)), used);
    assert_ne!(asked(Service::<u8>::without_self_call(&1)), used);
    let shared = Arc::new(service("t".to_owned()));
    let used = record(Arc::clone(&shared).by_arc()).await;
    assert_eq!(asked(shared.by_arc_call()), used);
    let mut pinned = service("t".to_owned());
    let used = record(Pin::new(&mut pinned).by_pin(2)).await;
    assert_eq!(asked(pinned.by_pin_call(&2)), used);
    let used = record(service("t".to_owned()).by_value()).await;
    assert_eq!(asked(one.by_value_call()), used);
    let used = record(Service::<u8>::r#type(&one.store, 3)).await;
    assert_eq!(asked(Service::<u8>::r#await(&3)), used);
}

mod far {
    use super::*;

    /// Not in scope where it is used.
    struct Local;

    #[idempotent(key = "all", singleton, ttl = "1h", store = store, companion = only_call)]
    pub(super) async fn only(store: &MemoryStore) -> Result<u8, Failure> {
        let Local = Local;
        Ok(1)
    }

    #[cfg(any())]
    #[idempotent(key = "all", singleton, ttl = "1h", store = store, companion = only_call)]
    pub(super) async fn only_elsewhere(store: &MemoryStore) -> Result<u8, Failure> {
        Ok(1)
    }
}

/// A method that a trait provides has room for a companion; an implementation has none.
trait Charge: Sync {
    fn tenant(&self) -> &str;

    #[idempotent(key = "{self.tenant()}:{no}", ttl = "1h", store = store, companion = charge_call)]
    async fn charge(&self, store: &MemoryStore, no: u64) -> Result<u8, Failure> {
        Ok(1)
    }
}

impl Charge for Text {
    fn tenant(&self) -> &str {
        self
    }
}

#[tokio::test]
async fn functions_inside_functions_and_modules() {
    #[idempotent(key = "{no}", ttl = "1h", store = store, companion = inner_call)]
    async fn inner(store: &MemoryStore, no: u64) -> Result<u8, Failure> {
        Ok(1)
    }
    let store = MemoryStore::new();
    let used = record(inner(&store, 1)).await;
    assert_eq!(asked(inner_call(&1)), used);
    let used = record(far::only(&store)).await;
    assert_eq!(asked(far::only_call()), used);
    let used = record("t".charge(&store, 1)).await;
    assert_eq!(asked("t".charge_call(&1)), used);
}

#[idempotent(key = "{a}/{b}:{c}", ttl = "1h", store = store, companion = whatever_call, fingerprint = none)]
async fn whatever(store: &MemoryStore, a: String, b: &str, c: i64) -> Result<u8, Failure> {
    Ok(1)
}

proptest! {
    #[test]
    fn whatever_the_values_are(a in ".{0,8}", b in "\\PC{1,8}", c in any::<i64>()) {
        let store = MemoryStore::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (answer, seen) = runtime.block_on(observe(whatever(&store, a.clone(), &b, c)));
        let call = whatever_call(&a, &b, &c);
        prop_assert_eq!(answer.is_ok(), call.is_ok());
        match call {
            Ok(call) => prop_assert_eq!(Some(call.record_id("")), seen.record_id()),
            Err(error) => {
                prop_assert_eq!(error.kind(), ErrorKind::EmptyKeyPart);
                prop_assert_eq!(answer.unwrap_err().kind(), ErrorKind::EmptyKeyPart);
            }
        }
    }
}

#[idempotent(
    key = "{no}", ttl = "1h", store = store, lease = "1s", fingerprint = none,
    record_err = Failure::is_final, companion = pay_call, on_crash = "hold"
)]
async fn pay(store: &MemoryStore, no: u64, body: &Body) -> Result<String, Failure> {
    body.run().await;
    match no {
        1 => Err(Failure::Busy),
        2 => Err(Failure::Declined("no cover".to_owned())),
        no => Ok(format!("paid {no}")),
    }
}

fn standing() -> (ManualClock, MemoryStore) {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    (clock, store)
}

fn done<A>(status: Status<A>) -> Completed<A> {
    match status {
        Status::Completed(done) => done,
        Status::Absent => panic!("absent"),
        _ => panic!("not completed"),
    }
}

#[tokio::test]
async fn the_whole_life_of_a_call() {
    let (clock, store) = standing();
    let body = Body::held();
    let call = pay_call(&7).unwrap();
    assert!(call.status(&store).await.unwrap().is_absent());
    let first = tokio::spawn({
        let (store, body) = (store.clone(), body.clone());
        async move { pay(&store, 7, &body).await }
    });
    body.started(1).await;
    let Status::InProgress(holder) = call.status(&store).await.unwrap() else {
        panic!("not in progress");
    };
    assert!(holder.owner.is_some() && holder.fence.is_some());
    let (since, until) = (holder.since.unwrap(), holder.lease_until.unwrap());
    assert_eq!(since.until(until), Duration::from_secs(1));
    assert_eq!(holder.free_in, Some(Duration::from_secs(1)));
    let error = call.forget(&store).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::InProgress, Effect::None)
    );
    assert_eq!(error.key(), Some("7"));
    body.release();
    assert_eq!(first.await.unwrap().unwrap(), "paid 7");
    clock.advance(Duration::from_secs(600));
    let completed = done(call.status(&store).await.unwrap());
    assert_eq!(completed.outcome.unwrap(), "paid 7");
    assert_eq!(completed.recorded_at, Some(since));
    assert_eq!(completed.left, Left::For(Duration::from_secs(3000)));
    clock.advance(Duration::from_secs(3000));
    assert!(call.status(&store).await.unwrap().is_absent());
    assert!(!call.forget(&store).await.unwrap());
    assert_eq!(body.runs(), 1);
}

#[tokio::test]
async fn errors_are_shown_as_they_are_replayed() {
    let (_, store) = standing();
    let body = Body::new();
    for no in [1, 2] {
        pay(&store, no, &body).await.unwrap_err();
    }
    let status = pay_call(&1).unwrap().status(&store).await.unwrap();
    assert!(status.is_absent(), "released");
    let call = pay_call(&2).unwrap();
    let outcome = done(call.status(&store).await.unwrap()).outcome;
    assert!(matches!(outcome, Err(Failure::Declined(why)) if why == "no cover"));
    assert!(call.forget(&store).await.unwrap());
    assert!(call.status(&store).await.unwrap().is_absent());
    assert_eq!(body.runs(), 2);
}

#[tokio::test]
async fn a_dropped_call_is_in_progress_until_its_lease_ends_and_then_abandoned() {
    let (clock, store) = standing();
    let body = Body::held();
    let call = pay_call(&7).unwrap();
    {
        let first = pay(&store, 7, &body);
        tokio::select! {
            _ = first => panic!("it is held"),
            () = body.started(1) => {}
        }
    }
    clock.advance(Duration::from_millis(999));
    let status = call.status(&store).await.unwrap();
    assert!(
        matches!(&status, Status::InProgress(holder)
        if holder.free_in == Some(Duration::from_millis(1))),
        "{status:?}"
    );
    assert_eq!(
        call.forget(&store).await.unwrap_err().kind(),
        ErrorKind::InProgress
    );
    clock.advance(Duration::from_millis(1));
    let status = call.status(&store).await.unwrap();
    assert!(matches!(status, Status::Abandoned(_)), "{status:?}");
    assert!(call.forget(&store).await.unwrap(), "somebody has decided");
    assert!(call.status(&store).await.unwrap().is_absent());
}

fn paid(how: &str) -> Result<String, Failure> {
    Ok(how.to_owned())
}

/// Leaves the call 7 behind.
async fn drop_midway(store: &MemoryStore, body: &Body) {
    tokio::select! {
        _ = pay(store, 7, body) => panic!("it is held"),
        () = body.started(1) => {}
    }
}

/// IP-17: the effect happened, and somebody says so.
#[tokio::test]
async fn an_abandoned_call_is_resolved_with_its_outcome() {
    let (clock, store) = standing();
    let body = Body::held();
    let call = pay_call(&7).unwrap();
    let refused = call.resolve(&store, &paid("by hand")).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.effect()),
        (ErrorKind::NotAbandoned, Effect::None),
        "nothing is recorded"
    );
    drop_midway(&store, &body).await;
    let refused = call.resolve(&store, &paid("by hand")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InProgress);
    assert!(matches!(refused.retry(), idem::Retry::Later(Some(after)) if !after.is_zero()));
    clock.advance(Duration::from_secs(1));
    for _ in 0..2 {
        call.resolve(&store, &paid("by hand")).await.unwrap();
    }
    call.resolve_without_outcome(&store).await.unwrap();
    let refused = call.resolve(&store, &paid("otherwise")).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.effect()),
        (ErrorKind::NotAbandoned, Effect::Done),
        "another outcome is recorded"
    );
    assert_eq!(pay(&store, 7, &body).await.unwrap(), "by hand");
    assert_eq!(body.runs(), 1);
    clock.advance(Duration::from_secs(3600));
    let status = call.status(&store).await.unwrap();
    assert!(
        status.is_absent(),
        "it is kept for the retention: {status:?}"
    );
}

#[tokio::test]
async fn an_abandoned_call_is_resolved_without_its_outcome() {
    let (clock, store) = standing();
    let body = Body::held();
    let call = pay_call(&7).unwrap();
    drop_midway(&store, &body).await;
    clock.advance(Duration::from_secs(1));
    for _ in 0..2 {
        call.resolve_without_outcome(&store).await.unwrap();
    }
    let status = call.status(&store).await.unwrap();
    assert!(matches!(status, Status::OutcomeGone(_)), "{status:?}");
    let refused = call.resolve(&store, &paid("by hand")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotAbandoned);
    let error = pay(&store, 7, &body).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::OutcomeGone, Effect::Done)
    );
    assert_eq!(body.runs(), 1);
}

#[tokio::test]
async fn a_call_is_resolved_with_an_error_where_that_is_recorded() {
    let (clock, store) = standing();
    let body = Body::held();
    let call = pay_call(&7).unwrap();
    drop_midway(&store, &body).await;
    clock.advance(Duration::from_secs(1));
    let refused = call.resolve(&store, &Err(Failure::Busy)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutcomeNotRecordable);
    let declined = Err(Failure::Declined("by hand".to_owned()));
    call.resolve(&store, &declined).await.unwrap();
    let answer = pay(&store, 7, &body).await;
    assert!(matches!(answer, Err(Failure::Declined(why)) if why == "by hand"));
    assert_eq!(body.runs(), 1);
}

#[idempotent(
    key = "{no}", ttl = "1h", store = store, max_outcome = "10B", oversize = "tombstone",
    key_text = "hidden", companion = large_call
)]
async fn large(store: &MemoryStore, no: u64) -> Result<String, Failure> {
    Ok("x".repeat(98))
}

#[tokio::test]
async fn an_outcome_that_is_not_kept_is_gone_and_a_hidden_key_is_hidden() {
    let (_, store) = standing();
    large(&store, 1).await.unwrap();
    let call = large_call(&1).unwrap();
    let Status::OutcomeGone(gone) = call.status(&store).await.unwrap() else {
        panic!("not gone");
    };
    assert_eq!(gone.bytes, Some(100));
    assert_eq!(gone.left, Left::For(Duration::from_secs(3600)));
    assert_eq!(call.key(), None);
    assert!(!format!("{call:?}").contains("key: Some"));
    assert!(
        call.scope().ends_with("companion::large"),
        "{}",
        call.scope()
    );
    assert!(call.forget(&store).await.unwrap());
}

#[derive(Clone, Debug, PartialEq)]
struct Order(i64);

#[idempotent(
    key = "{no}", ttl = "never", store = store, companion = order_call, codec = "msgpack",
    keep = |order: &Order| -> i64 { order.0 }, rebuild = async { Ok::<_, Failure>(Order(kept)) }
)]
async fn order(store: &MemoryStore, no: i64) -> Result<Order, Failure> {
    Ok(Order(no))
}

#[tokio::test]
async fn what_is_kept_is_shown() {
    let store = MemoryStore::new();
    order(&store, 7).await.unwrap();
    let call: CallRef<i64, Failure> = order_call(&7).unwrap();
    let completed = done(call.status(&store).await.unwrap());
    assert_eq!(completed.outcome.unwrap(), 7);
    assert_eq!(completed.left, Left::Forever);
}

/// The alias hides both types.
type Answer = Result<Renamed, Failure>;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Renamed {
    now: u64,
}

mod before {
    use super::*;

    #[idempotent(key = "{no}", ttl = "1h", store = store, scope = "companion.changed", shared_scope, schema = 1)]
    pub(super) async fn change(store: &MemoryStore, no: u64) -> Result<u64, Failure> {
        Ok(no)
    }
}

#[idempotent(key = "{no}", ttl = "1h", store = store, scope = "companion.changed", shared_scope, schema = 2, companion = change_call)]
async fn change(store: &MemoryStore, no: u64) -> Answer {
    Ok(Renamed { now: no })
}

#[tokio::test]
async fn an_outcome_that_this_build_cannot_read_is_an_error_and_no_absence() {
    let store = MemoryStore::builder().namespace("eu").build();
    before::change(&store, 1).await.unwrap();
    let call = change_call(&1).unwrap();
    let error = call.status(&store).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUndecodable);
    assert!(error.to_string().contains("schema version 2"), "{error}");
    // Who knows the id alone gets the bytes.
    let id = call.record_id("eu");
    assert_eq!(error.record_id(), Some(id));
    let raw = done(status::of_record(&store, id).await.unwrap());
    assert_eq!(idem::outcome::decode_ok::<u64>(&raw.outcome).unwrap(), 1);
    assert!(store.lookup(call.record_id("")).await.unwrap().is_none());
    change(&store, 2).await.unwrap();
    let completed = done(change_call(&2).unwrap().status(&store).await.unwrap());
    assert_eq!(completed.outcome.unwrap(), Renamed { now: 2 });
}

#[idempotent(
    key = "{no}", ttl = "1h", tombstone = "3h", store = store, fingerprint = none,
    companion = buried_call
)]
async fn buried(store: &MemoryStore, no: u64) -> Result<u64, Failure> {
    Ok(no)
}

#[tokio::test]
async fn a_key_that_is_known_longer_than_its_outcome_is_done() {
    let (clock, store) = standing();
    buried(&store, 7).await.unwrap();
    let call = buried_call(&7).unwrap();
    assert_eq!(done(call.status(&store).await.unwrap()).outcome.unwrap(), 7);
    clock.advance(Duration::from_secs(3600));
    let Status::OutcomeGone(gone) = call.status(&store).await.unwrap() else {
        panic!("not gone");
    };
    assert_eq!(gone.bytes, None);
    assert_eq!(gone.left, Left::For(Duration::from_secs(10_800)));
    clock.advance(Duration::from_secs(10_800));
    assert!(call.status(&store).await.unwrap().is_absent());
}
