//! The probes, called as generated code calls them.
#![deny(warnings)]
#![allow(clippy::unwrap_used, clippy::type_complexity)] // a test that fails may panic

use std::fmt;
use std::rc::Rc;

use idem_runtime::__private as rt;
use idem_runtime::fingerprint::{Fingerprint, FingerprintBuilder};
use serde::Serialize;

macro_rules! argument {
    ($builder:expr, $argument:expr) => {{
        #[allow(unused_imports)]
        use rt::{ProbeNothing as _, ProbeSerialize as _};
        (&&rt::Probe(&$argument)).feed($builder);
    }};
}

macro_rules! part {
    ($builder:expr, $part:expr) => {
        match &$part {
            part => {
                #[allow(unused_imports)]
                use rt::{ProbeAnyPart as _, ProbeKeyPart as _};
                (&&rt::PartProbe(part)).way().feed($builder, part);
            }
        }
    };
}

macro_rules! equality {
    ($t:ty) => {{
        #[allow(unused_imports)]
        use rt::{ProbeEq as _, ProbeNothing as _};
        (&&rt::EqProbe::<$t>::new()).equality()
    }};
}

macro_rules! sources {
    ($e:ty) => {{
        #[allow(unused_imports)]
        use rt::{ProbeError as _, ProbeNothing as _};
        (&&rt::ErrProbe::<$e>::new()).sources()
    }};
}

fn collect(feed: impl FnOnce(&mut FingerprintBuilder)) -> Fingerprint {
    let mut builder = FingerprintBuilder::new();
    feed(&mut builder);
    builder.finish().unwrap()
}

fn nothing() -> Fingerprint {
    collect(|_| ())
}

/// Implements nothing at all, and is neither `Send` nor `Sync`.
struct Opaque<'a>(#[allow(dead_code)] Rc<Vec<&'a str>>);

#[derive(Serialize)]
struct Request<'a> {
    name: &'a str,
    amount: u32,
}

fn generic<T>(argument: T) -> Fingerprint {
    collect(|b| argument!(b, argument))
}

fn bounded<T: Serialize>(argument: T) -> Fingerprint {
    collect(|b| argument!(b, argument))
}

#[test]
fn an_argument_goes_in_if_it_serialises() {
    let text = "a".to_owned();
    let request = Request {
        name: &text,
        amount: 5,
    };
    let serialised = collect(|b| b.part(&request));
    assert_eq!(collect(|b| argument!(b, request)), serialised);
    assert_eq!(collect(|b| argument!(b, &request)), serialised);
    assert_eq!(bounded(&request), serialised);
    let opaque = Opaque(Rc::new(vec![&text]));
    assert_eq!(collect(|b| argument!(b, opaque)), nothing());
    assert_eq!(
        collect(|b| argument!(b, &mut FingerprintBuilder::new())),
        nothing()
    );
    // Without a bound nothing is known of a parameter, whatever it is in this call.
    assert_eq!(generic(5), nothing());
    // Unsized.
    assert_eq!(
        collect(|b| argument!(b, *text.as_str())),
        collect(|b| b.key_part("a"))
    );
    assert_eq!(
        collect(|b| argument!(b, [1.5][..])),
        collect(|b| b.part(&[1.5]))
    );
    let object: &dyn fmt::Debug = &5;
    assert_eq!(collect(|b| argument!(b, *object)), nothing());
}

#[test]
fn key_07_what_is_refused_in_keys_is_taken_as_it_serialises() {
    assert_eq!(collect(|b| argument!(b, 1.5)), collect(|b| b.part(&1.5)));
    assert_eq!(collect(|b| part!(b, 1.5)), collect(|b| b.part(&1.5)));
    assert_ne!(collect(|b| part!(b, 0.0)), collect(|b| part!(b, -0.0)));
    assert_eq!(
        collect(|b| part!(b, Some(5))),
        collect(|b| b.part(&Some(5)))
    );
    assert_eq!(collect(|b| part!(b, vec![5])), collect(|b| b.part(&[5])));
}

/// A decimal: equal values print differently, and its key text is canonical.
#[derive(Serialize)]
struct Amount(&'static str);

impl idem_runtime::key::KeyPart for Amount {
    fn write_key(&self, out: &mut idem_runtime::key::KeyWriter<'_>) {
        out.write_str(self.0.trim_end_matches(['0', '.']));
    }
}

#[test]
fn key_06_fingerprint_and_key_treat_parts_alike() {
    assert_eq!(
        collect(|b| part!(b, Amount("10.50"))),
        collect(|b| part!(b, &Amount("10.5")))
    );
    assert_eq!(
        collect(|b| argument!(b, Amount("10.50"))),
        collect(|b| argument!(b, Amount("10.5")))
    );
    assert_ne!(
        collect(|b| part!(b, Amount("10.50"))),
        collect(|b| part!(b, Amount("10.51")))
    );
}

#[cfg(feature = "rust_decimal")]
#[test]
fn key_06_a_key_part_needs_no_serialisation() {
    let of = |n, scale| collect(|b| part!(b, rust_decimal::Decimal::new(n, scale)));
    assert_eq!(of(100, 1), of(1000, 2));
    assert_ne!(of(100, 1), of(101, 1));
}

#[test]
fn a_part_is_evaluated_once() {
    let mut calls = 0;
    let mut next = || {
        calls += 1;
        calls
    };
    assert_eq!(collect(|b| part!(b, next())), collect(|b| b.key_part(&1)));
    assert_eq!(calls, 1);
}

fn generic_equality<T>() -> bool {
    equality!(T).is_some()
}

fn bounded_equality<T: PartialEq>(a: &T, b: &T) -> Option<bool> {
    equality!(T).map(|equal| equal(a, b))
}

#[test]
fn equality_is_found_where_there_is_one() {
    let equal: Option<fn(&Vec<u8>, &Vec<u8>) -> bool> = equality!(Vec<u8>);
    assert_eq!(equal.map(|equal| equal(&vec![1], &vec![1])), Some(true));
    assert!(equality!(str).is_some());
    assert!(equality!(()).is_some());
    assert!(equality!(Opaque<'_>).is_none());
    assert!(equality!(dyn fmt::Debug).is_none());
    assert!(!generic_equality::<u8>());
    assert_eq!(bounded_equality(&Rc::new(1), &Rc::new(2)), Some(false));
}

#[derive(Debug)]
struct Borrowing<'a>(&'a str, Option<Inner>);

#[derive(Debug, PartialEq)]
struct Inner;

impl fmt::Display for Borrowing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("inner")
    }
}

impl std::error::Error for Inner {}

impl std::error::Error for Borrowing<'_> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.1.as_ref().map(|inner| inner as _)
    }
}

fn causes<'a>(error: &Borrowing<'a>) -> Option<String> {
    sources!(Borrowing<'a>).map(|sources| sources(error).to_string())
}

fn generic_causes<E: std::error::Error>(error: &E) -> Option<String> {
    sources!(E).map(|sources| sources(error).to_string())
}

fn unknown_causes<E>() -> bool {
    sources!(E).is_some()
}

#[test]
fn causes_are_found_without_a_static_lifetime() {
    let name = "borrowed".to_owned();
    let error = Borrowing(&name, Some(Inner));
    assert_eq!(causes(&error).as_deref(), Some("inner"));
    assert_eq!(generic_causes(&error).as_deref(), Some("inner"));
    assert_eq!(generic_causes(&Inner).as_deref(), Some("no cause"));
    assert!(!unknown_causes::<Inner>());
    assert!(sources!(String).is_none());
    assert!(sources!(Box<dyn std::error::Error + Send + Sync>).is_none());
}

#[test]
fn the_walk_begins_at_this_crates_own_errors() {
    let error = idem_runtime::Error::new(idem_runtime::ErrorKind::Reentrant);
    let sources = sources!(idem_runtime::Error).unwrap();
    assert!(sources(&error).is::<idem_runtime::Error>());
}

#[cfg(feature = "postgres")]
#[test]
fn the_walk_begins_at_sqlx_errors() {
    let error = sqlx::Error::RowNotFound;
    let sources = sources!(sqlx::Error).unwrap();
    assert!(sources(&error).is::<sqlx::Error>());
}
