//! Keys: different arguments never share a record, equal ones always do.

use std::{collections::HashMap, future::Future};

use idem::{ErrorKind, KeyPart, MemoryStore, idempotent};
use idem_test_support::Body;
use proptest::{prelude::*, test_runner::TestRunner};
use rust_decimal::Decimal;
use sqlx::SqliteTransaction;
use uuid::Uuid;

use crate::support::{Failure, Fresh};

/// The arguments themselves: a replay from another record shows.
type Echo = Result<(String, String), Failure>;

macro_rules! echoes {
    ($($name:ident($a:ident, $b:ident) = $key:literal;)*) => {$(
        #[idempotent(key = $key, ttl = "1h", store = store, fingerprint = none)]
        async fn $name(store: &MemoryStore, $a: &str, $b: String) -> Echo {
            Ok(($a.to_owned(), $b))
        }
    )*};
}

echoes! {
    by_colon(a, b) = "{a}:{b}";
    by_percent(a, b) = "{a}%-%{b}";
    by_space(a, b) = "{a} {b}";
    by_words(a, b) = "order {a}, item {b}!";
    by_braces(a, b) = "{{{a}}}-{{{b}}}";
    by_letters(a, b) = "{a}%3A:x{b}";
    swapped(a, b) = "{b}/{a}";
}

#[idempotent(key(a, b), ttl = "1h", store = store, fingerprint = none)]
async fn by_parts(store: &MemoryStore, a: &str, b: String) -> Echo {
    Ok((a.to_owned(), b))
}

#[idempotent(key = "{a}:{b}", ttl = "1h", store = tx, fingerprint = none)]
async fn in_tx(tx: &mut SqliteTransaction<'_>, a: &str, b: String) -> Echo {
    Ok((a.to_owned(), b))
}

/// Any text, and often one that is made of what separates and escapes.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[:%{}/ ,!\\-0-9A-Fa-c\\\\\n\u{0}é]{0,5}",
        "[x:%3A]{0,4}",
        ".{0,8}"
    ]
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// The arguments came back, or a part is blank.
fn check(answer: Echo, a: &str, b: &str) -> Result<(), TestCaseError> {
    match answer {
        Ok(echo) => prop_assert_eq!(echo, (a.to_owned(), b.to_owned())),
        Err(error) => {
            prop_assert_eq!(error.kind(), ErrorKind::EmptyKeyPart);
            let blank = |part: &str| !part.contains(char::is_alphanumeric);
            prop_assert!(blank(a) || blank(b));
        }
    }
    Ok(())
}

#[test]
fn key_01_every_list_of_values_has_its_own_record() {
    let store = MemoryStore::new();
    let mut runner = TestRunner::new(ProptestConfig::with_cases(3000));
    // One store for all cases: each is compared with all before it.
    runner
        .run(&(text(), text()), |(a, b)| {
            block_on(async {
                let (store, a, b) = (&store, a.as_str(), b.as_str());
                check(by_colon(store, a, b.to_owned()).await, a, b)?;
                check(by_percent(store, a, b.to_owned()).await, a, b)?;
                check(by_space(store, a, b.to_owned()).await, a, b)?;
                check(by_words(store, a, b.to_owned()).await, a, b)?;
                check(by_braces(store, a, b.to_owned()).await, a, b)?;
                check(by_letters(store, a, b.to_owned()).await, a, b)?;
                check(swapped(store, a, b.to_owned()).await, a, b)?;
                check(by_parts(store, a, b.to_owned()).await, a, b)
            })
        })
        .unwrap();
    assert!(store.len() > 5000);
}

#[test]
fn key_01_in_a_database_too() {
    block_on(async {
        let fresh = Fresh::new().await;
        let mut tx = fresh.begin().await;
        let pieces = [
            "x", ":", "%", "%3A", "y", "\0", "\n", "{", "}", "é", "E\u{301}",
        ];
        let mut texts: Vec<String> = vec![String::new()];
        for one in pieces {
            texts.push(one.to_owned());
            for two in pieces {
                texts.push(format!("{one}{two}"));
            }
        }
        for a in texts.iter().step_by(3) {
            for b in texts.iter().step_by(2) {
                check(in_tx(&mut tx, a, b.clone()).await, a, b).unwrap();
            }
        }
        tx.rollback().await.unwrap();
    });
}

#[derive(serde::Serialize)]
struct User {
    name: Option<String>,
}

impl User {
    /// The explicit choice that a key asks for.
    fn tag(&self) -> String {
        match &self.name {
            Some(name) => format!("named {name}"),
            None => "nobody".to_owned(),
        }
    }
}

#[idempotent(key = "{user.tag()}/{order}", ttl = "1h", store = store, fingerprint = none)]
async fn for_user(
    store: &MemoryStore,
    user: &User,
    order: &str,
    body: &Body,
) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[tokio::test]
async fn key_02_a_missing_part_is_refused_and_never_equal_to_a_text() {
    let (store, body) = (MemoryStore::new(), Body::new());
    let user = |name: Option<&str>| User {
        name: name.map(str::to_owned),
    };
    for (run, name) in [None, Some(""), Some("None"), Some("nobody")]
        .into_iter()
        .enumerate()
    {
        let answer = for_user(&store, &user(name), "1", &body).await;
        assert_eq!(answer.unwrap(), run + 1);
    }
    let error = for_user(&store, &user(None), "", &body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::EmptyKeyPart);
    assert_eq!(error.effect(), idem::Effect::None);
    assert_eq!((body.runs(), store.len()), (4, 4));
}

#[derive(Clone, Copy, KeyPart)]
enum Currency {
    Eur,
    Usd,
}

#[idempotent(key = "{amount}-{currency}", ttl = "1h", store = store)]
async fn in_money(
    store: &MemoryStore,
    amount: Decimal,
    currency: Currency,
    body: &Body,
) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[idempotent(key = "{id}", ttl = "1h", store = store)]
async fn by_uuid(store: &MemoryStore, id: Uuid, body: &Body) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[idempotent(key = "{no}", ttl = "1h", store = store)]
async fn paying(
    store: &MemoryStore,
    no: u64,
    amount: Decimal,
    body: &Body,
) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[tokio::test]
async fn key_06_equal_values_are_one_key_and_one_payload() {
    let (store, body) = (MemoryStore::new(), Body::new());
    for text in ["10.0", "10.00", "10"] {
        let amount: Decimal = text.parse().unwrap();
        let answer = in_money(&store, amount, Currency::Eur, &body).await;
        assert_eq!(answer.unwrap(), 1, "{text}");
        assert_eq!(paying(&store, 1, amount, &Body::new()).await.unwrap(), 1);
    }
    let other = in_money(&store, Decimal::TEN, Currency::Usd, &body).await;
    assert_eq!(other.unwrap(), 2);
    let error = paying(&store, 1, Decimal::ONE, &body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FingerprintMismatch);

    let body = Body::new();
    for text in [
        "f47ac10b-58cc-4372-a567-0e02b2c3d479",
        "F47AC10B-58CC-4372-A567-0E02B2C3D479",
        "f47ac10b58cc4372a5670e02b2c3d479",
    ] {
        let id: Uuid = text.parse().unwrap();
        assert_eq!(by_uuid(&store, id, &body).await.unwrap(), 1);
    }
}

#[idempotent(key = "notify", ttl = "1h", store = store, singleton)]
async fn notify(store: &MemoryStore, user: u64, body: &Body) -> Result<usize, Failure> {
    Ok(body.run().await)
}

#[tokio::test]
async fn key_11_a_singleton_is_one_call_and_tells_other_arguments_apart() {
    let (store, body) = (MemoryStore::new(), Body::new());
    assert_eq!(notify(&store, 1, &body).await.unwrap(), 1);
    assert_eq!(notify(&store, 1, &body).await.unwrap(), 1);
    let error = notify(&store, 2, &body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FingerprintMismatch);
    assert_eq!(body.runs(), 1);
}

#[tokio::test]
async fn a_key_that_is_too_long_is_refused_before_the_body() {
    let store = MemoryStore::new();
    let long = "x".repeat(idem::key::MAX_KEY_BYTES + 1);
    let error = by_colon(&store, &long, "y".to_owned()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::KeyTooLong);
    let long = "x".repeat(idem::key::MAX_KEY_BYTES - 2);
    let echo = by_colon(&store, &long, "y".to_owned()).await.unwrap();
    assert_eq!(echo.0.len(), long.len());
    // In a database the key is cut for people to read, and only there.
    let fresh = Fresh::new().await;
    let mut tx = fresh.begin().await;
    let mut echoes = HashMap::new();
    for last in ["a", "b"] {
        let long = format!("{}{last}", "x".repeat(5000));
        let (a, _) = in_tx(&mut tx, &long, "y".to_owned()).await.unwrap();
        echoes.insert(a, last);
    }
    assert_eq!(echoes.len(), 2);
    tx.commit().await.unwrap();
}
