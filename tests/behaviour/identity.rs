//! Which functions share records.

use idem::{Effect, ErrorKind, MemoryStore, idempotent, key::RecordId, observe, store::Store};
use idem_test_support::Body;

use crate::support::Failure;

struct A;
struct B;

impl A {
    #[idempotent(key = "{no}", ttl = "1h", store = store)]
    async fn run(&self, store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
        Ok(body.run().await)
    }

    #[idempotent(key = "{no}", ttl = "1h", store = store)]
    async fn make(store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
        Ok(body.run().await)
    }
}

impl B {
    #[idempotent(key = "{no}", ttl = "1h", store = store)]
    async fn run(&self, store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
        Ok(body.run().await)
    }

    #[idempotent(key = "{no}", ttl = "1h", store = store)]
    async fn make(store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
        Ok(body.run().await)
    }
}

trait Pay {
    async fn pay(&self, store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure>;
}

impl Pay for A {
    #[idempotent(key = "{no}", ttl = "1h", store = store)]
    async fn pay(&self, store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
        Ok(body.run().await)
    }
}

impl Pay for B {
    #[idempotent(key = "{no}", ttl = "1h", store = store)]
    async fn pay(&self, store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
        Ok(body.run().await)
    }
}

#[async_trait::async_trait]
trait Refund {
    async fn refund(&self, store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure>;
}

#[async_trait::async_trait]
impl Refund for A {
    #[idempotent(key = "{no}", ttl = "1h", store = store)]
    async fn refund(&self, store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
        Ok(body.run().await)
    }
}

#[async_trait::async_trait]
impl Refund for B {
    #[idempotent(key = "{no}", ttl = "1h", store = store)]
    async fn refund(&self, store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
        Ok(body.run().await)
    }
}

mod x {
    use super::*;

    #[idempotent(key = "{no}", ttl = "1h", store = store)]
    pub(super) async fn run(store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
        Ok(body.run().await)
    }
}

mod y {
    use super::*;

    #[idempotent(key = "{no}", ttl = "1h", store = store)]
    pub(super) async fn run(store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
        Ok(body.run().await)
    }
}

#[idempotent(key = "{no}", ttl = "1h", store = store)]
async fn generic<T: Send>(store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[idempotent(key = "{no}", ttl = "1h", store = store)]
async fn opaque(
    store: &MemoryStore,
    no: u64,
    extra: impl Send + Sync,
    body: &Body,
) -> Result<usize, Failure> {
    let run = body.run().await;
    drop(extra);
    Ok(run)
}

struct Holder<T>(T);

impl<T: Send + Sync> Holder<T> {
    #[idempotent(key = "{no}", ttl = "1h", store = store)]
    async fn run(&self, store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
        Ok(body.run().await)
    }
}

#[tokio::test]
async fn key_04_every_function_has_its_own_records() {
    let store = MemoryStore::new();
    let bodies: [Body; 14] = std::array::from_fn(|_| Body::new());
    for replayed in [false, true] {
        let b = &bodies;
        let seen = [
            observe(A.run(&store, 1, &b[0])).await,
            observe(B.run(&store, 1, &b[1])).await,
            observe(A::make(&store, 1, &b[2])).await,
            observe(B::make(&store, 1, &b[3])).await,
            observe(A.pay(&store, 1, &b[4])).await,
            observe(B.pay(&store, 1, &b[5])).await,
            observe(A.refund(&store, 1, &b[6])).await,
            observe(B.refund(&store, 1, &b[7])).await,
            observe(x::run(&store, 1, &b[8])).await,
            observe(y::run(&store, 1, &b[9])).await,
            observe(generic::<u8>(&store, 1, &b[10])).await,
            observe(generic::<String>(&store, 1, &b[11])).await,
            observe(Holder(1_u8).run(&store, 1, &b[12])).await,
            observe(Holder(1_u16).run(&store, 1, &b[13])).await,
        ];
        for (at, (answer, seen)) in seen.into_iter().enumerate() {
            assert_eq!(answer.unwrap(), 1, "function {at}");
            assert_eq!(seen.replayed(), replayed, "function {at}");
        }
    }
    assert_eq!(store.len(), 14);
}

#[tokio::test]
async fn key_04_the_type_behind_an_impl_trait_is_part_of_the_function() {
    let (store, body) = (MemoryStore::new(), Body::new());
    assert_eq!(opaque(&store, 1, A, &body).await.unwrap(), 1);
    assert_eq!(opaque(&store, 1, B, &body).await.unwrap(), 2);
    assert_eq!(opaque(&store, 1, A, &body).await.unwrap(), 1);
}

mod before {
    use super::*;

    #[idempotent(key = "order:{no}", ttl = "1h", store = store, scope = "order.pay", shared_scope)]
    pub(super) async fn pay(store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
        Ok(body.run().await)
    }

    #[idempotent(key = "order:{no}", ttl = "1h", store = store)]
    pub(super) async fn bare(store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
        Ok(body.run().await)
    }
}

mod after {
    use super::*;

    /// The same function moved, renamed, and grown a type argument.
    #[idempotent(key = "order:{number}", ttl = "1h", store = store, scope = "order.pay", shared_scope)]
    pub(super) async fn pay_order<T: Send>(
        store: &MemoryStore,
        number: u64,
        body: &Body,
    ) -> Result<usize, Failure> {
        Ok(body.run().await)
    }

    #[idempotent(key = "order:{no}", ttl = "1h", store = store)]
    pub(super) async fn bare(store: &MemoryStore, no: u64, body: &Body) -> Result<usize, Failure> {
        Ok(body.run().await)
    }
}

#[tokio::test]
async fn key_05_a_fixed_scope_survives_a_rename_and_a_move() {
    let (store, body) = (MemoryStore::new(), Body::new());
    assert_eq!(before::pay(&store, 7, &body).await.unwrap(), 1);
    assert_eq!(after::pay_order::<A>(&store, 7, &body).await.unwrap(), 1);
    assert_eq!(after::pay_order::<B>(&store, 7, &body).await.unwrap(), 1);
    // The path of the function is its name otherwise.
    assert_eq!(before::bare(&store, 7, &body).await.unwrap(), 2);
    assert_eq!(after::bare(&store, 7, &body).await.unwrap(), 3);
}

/// What stands in stores: it never changes with a release of this crate or of the compiler.
#[tokio::test]
async fn key_05_scopes_key_texts_and_ids_are_golden() {
    let (store, body) = (MemoryStore::new(), Body::new());
    let calls = [
        observe(before::pay(&store, 7, &body)).await.1,
        observe(before::bare(&store, 7, &body)).await.1,
        observe(A.run(&store, 7, &body)).await.1,
        observe(A.pay(&store, 7, &body)).await.1,
        observe(A.refund(&store, 7, &body)).await.1,
        observe(generic::<Vec<u8>>(&store, 7, &body)).await.1,
    ];
    let expected: [(&str, &[&str], &str); 6] = [
        ("order.pay", &[], "order:7"),
        ("behaviour::identity::before::bare", &[], "order:7"),
        (
            "behaviour::identity::A::run",
            &["behaviour::identity::A"],
            "7",
        ),
        (
            "<behaviour::identity::A as behaviour::identity::Pay>::pay",
            &["behaviour::identity::A"],
            "7",
        ),
        (
            "<behaviour::identity::A as behaviour::identity::Refund>::refund",
            &["behaviour::identity::A"],
            "7",
        ),
        (
            "behaviour::identity::generic",
            &["alloc::vec::Vec<u8>"],
            "7",
        ),
    ];
    for (seen, (scope, types, key)) in calls.into_iter().zip(expected) {
        let id = seen.record_id().unwrap();
        let stored = store.lookup(id).await.unwrap().unwrap();
        assert_eq!(stored.scope, scope);
        assert_eq!(stored.key_text.as_deref(), Some(key));
        assert_eq!(id, RecordId::new("", scope, types, key), "{scope}");
    }
    // SHA-256 over version 1 and the length-prefixed parts, cut to 16 bytes.
    let fixed = RecordId::new("", "order.pay", &[], "order:7");
    assert_eq!(fixed.to_string(), "26ef6b9df5144a3d7d0e4c6529f16ce0");
}

mod one_scope {
    //! Two functions that were given one scope, say by copying the attribute.
    use super::*;

    #[idempotent(key = "{no}", ttl = "1h", store = store, scope = "one_scope.pay")]
    pub(super) async fn pay(store: &MemoryStore, no: u64) -> Result<f64, Failure> {
        Ok(300.0)
    }

    #[idempotent(key = "{no}", ttl = "1h", store = store, scope = "one_scope.pay")]
    pub(super) async fn refund(store: &MemoryStore, no: u64) -> Result<Option<u64>, Failure> {
        Ok(None)
    }

    #[idempotent(key = "{no}", ttl = "1h", store = store, scope = "one_scope.old", shared_scope)]
    pub(super) async fn old(store: &MemoryStore, no: u64) -> Result<u64, Failure> {
        Ok(1)
    }

    #[idempotent(key = "{no}", ttl = "1h", store = store, scope = "one_scope.old", shared_scope)]
    pub(super) async fn new(store: &MemoryStore, no: u64) -> Result<u64, Failure> {
        Ok(2)
    }
}

#[tokio::test]
async fn two_functions_with_one_scope_are_refused_with_both_places() {
    let store = MemoryStore::new();
    assert_eq!(one_scope::pay(&store, 1).await.unwrap(), 300.0);
    for _ in 0..2 {
        let error = one_scope::refund(&store, 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DuplicateScope);
        assert_eq!(error.effect(), Effect::None);
        let text = error.to_string();
        assert_eq!(text.matches("identity.rs:").count(), 2, "{text}");
    }
    assert_eq!(one_scope::pay(&store, 2).await.unwrap(), 300.0);
}

#[tokio::test]
async fn two_functions_that_share_a_scope_on_purpose_share_their_records() {
    let store = MemoryStore::new();
    assert_eq!(one_scope::old(&store, 1).await.unwrap(), 1);
    assert_eq!(one_scope::new(&store, 1).await.unwrap(), 1);
}

#[tokio::test]
async fn two_functions_of_one_name_in_sibling_blocks_are_told_apart() {
    let store = MemoryStore::new();
    let first = {
        #[idempotent(key = "{no}", ttl = "1h", store = store)]
        async fn pay(store: &MemoryStore, no: u64) -> Result<u64, Failure> {
            Ok(1)
        }
        pay(&store, 1).await
    };
    let second = {
        #[idempotent(key = "{no}", ttl = "1h", store = store)]
        async fn pay(store: &MemoryStore, no: u64) -> Result<u64, Failure> {
            Ok(2)
        }
        pay(&store, 1).await
    };
    assert_eq!(first.unwrap(), 1);
    assert_eq!(second.unwrap_err().kind(), ErrorKind::DuplicateScope);
}
