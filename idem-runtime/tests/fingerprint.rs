//! The fingerprint of a payload.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test that fails may panic

use std::collections::{HashMap, HashSet};
use std::process::Command;

use idem_runtime::ErrorKind;
use idem_runtime::fingerprint::{Fingerprint, FingerprintBuilder, FingerprintPart};
use serde::{Serialize, Serializer};

fn of(parts: &[&dyn Fn(&mut FingerprintBuilder)]) -> Fingerprint {
    let mut builder = FingerprintBuilder::new();
    for part in parts {
        part(&mut builder);
    }
    builder.finish().unwrap()
}

fn one<T: FingerprintPart + ?Sized>(part: &T) -> Fingerprint {
    of(&[&|builder| builder.part(part)])
}

fn hex(fingerprint: Fingerprint) -> String {
    fingerprint
        .as_bytes()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

#[derive(Serialize)]
struct Order {
    amount_minor: u64,
    currency: String,
    note: Option<String>,
    lines: Vec<Line>,
    rate: f64,
    method: Method,
    tags: HashSet<String>,
}

#[derive(Serialize)]
struct Line {
    sku: String,
    count: u32,
}

#[derive(Serialize)]
struct Big {
    b: u8,
    a: String,
}

#[derive(Serialize)]
enum Method {
    Card { last4: String },
}

fn order() -> Order {
    let line = |sku: &str, count| Line {
        sku: sku.to_owned(),
        count,
    };
    Order {
        amount_minor: 1999,
        currency: "EUR".to_owned(),
        note: None,
        lines: vec![line("A-1", 2), line("B-2", 1)],
        rate: 1.25,
        method: Method::Card {
            last4: "4242".to_owned(),
        },
        tags: HashSet::from(["a".to_owned(), "b".to_owned()]),
    }
}

/// Calculated by another implementation of the documented form.
#[test]
fn golden_values_never_change() {
    let long = "x".repeat(5000);
    let big = Big {
        b: 1,
        a: long.clone(),
    };
    for (fingerprint, golden) in [
        (of(&[]), "014bf5122f344554c53bde2ebb8cd2b7e3"),
        (one(&5_u64), "01edc168ead43a019904bde8d445c169cf"),
        (one(&-129), "01b5152e8881edbc6f62fe27c887384490"),
        (one(&order()), "010fda5b136c00f7ad75ac9b703d9cb001"),
        (
            of(&[&|b| b.part(&5), &|b| b.part("x")]),
            "0141102baf02bf95154071e6fa3ed7fd7b",
        ),
        (
            of(&[&|b| b.key_part(&10)]),
            "019664db64926717c3f49d537212d6ecdc",
        ),
        (one(&vec![0_u8; 5000]), "0157d92e391dc1a0aee71a3201aec91316"),
        (one(&long), "01e2bf9988224e3de6bdad0c9f2a6aed45"),
        (one(&big), "014d335bc260a435bd4501d21981e931a2"),
    ] {
        assert_eq!(hex(fingerprint), golden);
        assert_eq!(
            Fingerprint::from_bytes(*fingerprint.as_bytes()),
            fingerprint
        );
    }
    assert_eq!(*Fingerprint::NONE.as_bytes(), [0; 17]);
}

#[test]
fn the_border_between_parts_counts() {
    let two = |a: &'static str, b: &'static str| of(&[&|f| f.part(a), &|f| f.part(b)]);
    assert_ne!(two("ab", "c"), two("a", "bc"));
    assert_ne!(two("a", ""), two("", "a"));
    assert_ne!(two("a", "b"), one(&("a", "b")));
    assert_ne!(one(&None::<u8>), of(&[]));
}

#[test]
fn a_check_that_was_not_made_is_no_mismatch() {
    let (five, six) = (one(&5), one(&6));
    assert!(five.matches(five));
    assert!(!five.matches(six));
    assert!(five.matches(Fingerprint::NONE));
    assert!(Fingerprint::NONE.matches(five));
    assert!(Fingerprint::NONE.is_none() && !five.is_none());
    let mut newer = *five.as_bytes();
    newer[0] = 2;
    assert!(Fingerprint::from_bytes(newer).matches(six));
}

struct Spiteful;

impl Serialize for Spiteful {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("lock poisoned"))
    }
}

#[test]
fn a_failure_is_remembered() {
    let mut builder = FingerprintBuilder::new();
    builder.part(&1);
    builder.part(&Spiteful);
    builder.part(&2);
    let error = builder.finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FingerprintFailed);
    let text = error.to_string();
    assert!(text.contains("part 2 of the payload"), "{text}");
    assert!(text.contains("lock poisoned"), "{text}");
}

#[test]
fn without_a_check_parts_are_not_looked_at() {
    let mut builder = FingerprintBuilder::none();
    builder.part(&Spiteful);
    assert_eq!(builder.finish().unwrap(), Fingerprint::NONE);
}

#[derive(serde::Deserialize, Serialize)]
struct Body {
    id: u8,
    tags: Vec<u8>,
    #[serde(default)]
    note: Option<String>,
}

#[test]
fn key_09_the_text_of_a_body_does_not_count() {
    let read = |text: &str| one(&serde_json::from_str::<Body>(text).unwrap());
    let compact = read(r#"{"id":1,"tags":[2,3],"note":null}"#);
    assert_eq!(
        compact,
        read("{\n  \"note\": null,\n  \"tags\": [ 2, 3 ],\n  \"id\": 1\n}")
    );
    // Absent and null are one value of this type before there is a fingerprint.
    assert_eq!(compact, read(r#"{"tags":[2,3],"id":1}"#));
    assert_ne!(compact, read(r#"{"id":1,"tags":[3,2]}"#));
}

#[derive(Serialize)]
struct Hashed {
    map: HashMap<String, HashMap<u32, HashSet<String>>>,
    set: HashSet<(u8, String)>,
}

fn hashed() -> Hashed {
    let words = |n: u32| (0..20).map(|i| format!("w{i}-{n}")).collect();
    Hashed {
        map: (0..6)
            .map(|i| (format!("k{i}"), (0..6).map(|n| (n, words(n))).collect()))
            .collect(),
        set: (0..50).map(|i| (i, format!("e{i}"))).collect(),
    }
}

#[test]
fn key_09_two_processes_agree() {
    const ASK: &str = "IDEM_TEST_PRINT_FINGERPRINT";
    let here = hex(one(&hashed()));
    if std::env::var_os(ASK).is_some() {
        println!("fingerprint={here}");
        return;
    }
    for _ in 0..3 {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "key_09_two_processes_agree", "--nocapture"])
            .env(ASK, "1")
            .output()
            .unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.contains(&format!("fingerprint={here}")),
            "{output}, here {here}"
        );
    }
}
