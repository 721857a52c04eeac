//! Outcomes that do not read back equal are refused while the effect can still be rolled back; all
//! others replay equal. In the caller's transaction.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;

use idem::{Effect, ErrorKind, Retry, idempotent, observe};
use idem_test_support::Body;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sqlx::SqliteTransaction;

use crate::support::{Failure, Fresh, committed, write};

/// Gives what it is given. The value is no part of the payload: NaN is not equal to itself either.
#[idempotent(key = "{no}", ttl = "1h", store = tx, fingerprint = none)]
async fn gives<T: Serialize + DeserializeOwned + Send>(
    tx: &mut SqliteTransaction<'_>,
    no: u64,
    value: T,
    body: &Body,
) -> Result<T, Failure> {
    write(tx, "given").await?;
    body.run().await;
    Ok(value)
}

/// The same with a type that knows what is equal.
#[idempotent(key = "{no}", ttl = "1h", store = tx, fingerprint = none)]
async fn login(
    tx: &mut SqliteTransaction<'_>,
    no: u64,
    token: &str,
    body: &Body,
) -> Result<Session, Failure> {
    write(tx, "login").await?;
    body.run().await;
    let token = token.to_owned();
    Ok(Session { id: 7, token })
}

/// A field that is not stored.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Session {
    id: u8,
    #[serde(skip)]
    token: String,
}

/// The value comes back as it was.
async fn replays<T>(fresh: &Fresh, no: u64, value: T) -> T
where
    T: Serialize + DeserializeOwned + Send + Clone,
{
    let body = Body::new();
    committed!(fresh, tx => gives(tx, no, value.clone(), &body)).unwrap();
    let mut tx = fresh.begin().await;
    let (answer, seen) = observe(gives(&mut tx, no, value, &body)).await;
    tx.rollback().await.unwrap();
    assert!(seen.replayed());
    assert_eq!(body.runs(), 1);
    answer.unwrap()
}

async fn equal<T>(fresh: &Fresh, no: u64, value: T)
where
    T: Serialize + DeserializeOwned + Send + Clone + PartialEq + Debug,
{
    assert_eq!(replays(fresh, no, value.clone()).await, value);
}

fn assert_refused<T: Debug>(answer: Result<T, Failure>) -> String {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeNotRecordable);
    assert_eq!(error.effect(), Effect::None);
    assert_eq!(error.idem().retry(), Retry::Never);
    error.to_string()
}

/// Refused, whatever the caller does then: its commit is refused by the database.
async fn refused<T>(value: T) -> String
where
    T: Serialize + DeserializeOwned + Send + Clone + Debug,
{
    let (fresh, body) = (Fresh::new().await, Body::new());
    let mut tx = fresh.begin().await;
    assert_refused(gives(&mut tx, 1, value.clone(), &body).await);
    let commit = tx.commit().await.unwrap_err();
    assert!(commit.to_string().contains("FOREIGN KEY"), "{commit}");
    assert_eq!(fresh.effects().await, 0);

    let again = committed!(fresh, tx => gives(tx, 1, value, &body));
    let text = assert_refused(again);
    assert_eq!(body.runs(), 2, "nothing was recorded");
    assert_eq!(fresh.effects().await, 0);
    text
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Marker;

#[tokio::test]
async fn ser_01_nothing_is_a_result_and_something_like_nothing_is_not_taken_for_it() {
    let fresh = Fresh::new().await;
    equal(&fresh, 1, ()).await;
    equal(&fresh, 2, None::<()>).await;
    equal(&fresh, 3, None::<String>).await;
    equal(&fresh, 4, 0_u64).await;
    equal(&fresh, 5, false).await;
    equal(&fresh, 6, Vec::<u8>::new()).await;
    equal(&fresh, 7, String::new()).await;
    equal(&fresh, 8, Some(0_u8)).await;
    equal(&fresh, 9, Some(Vec::<u8>::new())).await;
    equal(&fresh, 10, Marker).await;
    refused(Some(())).await;
    refused(Some(Marker)).await;
    refused(Some(None::<u8>)).await;
    refused(vec![Some(())]).await;
}

#[tokio::test]
async fn ser_03_not_a_number_is_refused_with_its_place() {
    refused(f64::NAN).await;
    refused(f64::INFINITY).await;
    refused(vec![1.0, f64::NEG_INFINITY]).await;
    let text = refused(BTreeMap::from([("rate".to_owned(), f64::NAN)])).await;
    assert!(text.contains("rate"), "{text}");
    let fresh = Fresh::new().await;
    let zero = replays(&fresh, 1, -0.0_f64).await;
    assert_eq!(zero.to_bits(), (-0.0_f64).to_bits());
}

#[tokio::test]
async fn ser_04_floats_come_back_bit_by_bit() {
    let fresh = Fresh::new().await;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut values = vec![
        0.999_999_999_999_999_9,
        117.633_311_394_000_17,
        1.577_777_777_777_000_1,
    ];
    while values.len() < 10_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        values.extend(Some(f64::from_bits(state)).filter(|value| value.is_finite()));
    }
    let again = replays(&fresh, 1, values.clone()).await;
    let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&again), bits(&values));
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Wide {
    n: i128,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Flat {
    #[serde(flatten)]
    wide: Wide,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Either {
    Number(u128),
    Text(String),
}

#[tokio::test]
async fn ser_06_wide_integers_come_back_or_are_refused() {
    let fresh = Fresh::new().await;
    equal(&fresh, 1, u128::MAX).await;
    equal(&fresh, 2, i128::MIN).await;
    equal(&fresh, 3, u64::MAX).await;
    equal(&fresh, 4, Wide { n: i128::MAX }).await;
    refused(Flat {
        wide: Wide { n: 1 },
    })
    .await;
    refused(Either::Number(5)).await;
    equal(&fresh, 5, Either::Text("five".to_owned())).await;
}

#[tokio::test]
async fn ser_07_maps_with_keys_that_are_no_text() {
    let fresh = Fresh::new().await;
    equal(&fresh, 1, BTreeMap::from([(1_u64, "one".to_owned())])).await;
    equal(&fresh, 2, HashMap::from([(-1_i8, 1)])).await;
    equal(&fresh, 3, BTreeMap::from([(true, 1)])).await;
    equal(&fresh, 4, BTreeMap::from([('x', 1)])).await;
    refused(HashMap::from([((1_u8, 2_u8), 3_u8)])).await;
    refused(HashMap::from([([0_u8; 32], 3_u8)])).await;
}

#[tokio::test]
async fn ser_09_a_field_that_is_not_stored_is_found_by_equality() {
    let (fresh, body) = (Fresh::new().await, Body::new());
    let answer = committed!(fresh, tx => login(tx, 1, "secret", &body));
    assert_refused(answer);
    assert_eq!(fresh.effects().await, 0);
    // With what it would read back as there is nothing to lose.
    for _ in 0..2 {
        let answer = committed!(fresh, tx => login(tx, 2, "", &body));
        assert_eq!(
            answer.unwrap(),
            Session {
                id: 7,
                token: String::new()
            }
        );
    }
    assert_eq!(body.runs(), 2);
}

#[tokio::test]
async fn ser_values_of_every_shape_come_back() {
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    enum Shape {
        Unit,
        New(u8),
        Tuple(u8, String),
        Struct { a: Option<u8>, b: Vec<(char, i64)> },
    }
    let fresh = Fresh::new().await;
    let shapes = vec![
        Shape::Unit,
        Shape::New(1),
        Shape::Tuple(2, "\u{0}\"\\é\u{1F600}".to_owned()),
        Shape::Struct {
            a: None,
            b: vec![('x', i64::MIN)],
        },
    ];
    equal(&fresh, 1, shapes).await;
    equal(&fresh, 2, Ok::<u8, String>(1)).await;
    equal(&fresh, 3, uuid::Uuid::from_u128(7)).await;
}
