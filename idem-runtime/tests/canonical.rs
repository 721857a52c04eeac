//! The canonical form.
#![allow(clippy::unwrap_used)] // a test that fails may panic

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet};

use idem_runtime::canonical::{CanonicalError, form};
use proptest::prelude::*;
use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Serialize, Serializer};

/// Every shape that serde knows, with an equality of its own to test the form against.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shape {
    Unit,
    None,
    Some(Box<Shape>),
    Bool(bool),
    Int(i128),
    Unsigned(u128),
    F32(u32),
    F64(u64),
    Char(char),
    Str(String),
    Bytes(Vec<u8>),
    UnitVariant(&'static str),
    Variant(&'static str, Box<Shape>),
    Seq(Vec<Shape>),
    Map(BTreeMap<Shape, Shape>),
}

/// A shape whose maps are written in the order that the number picks.
struct Turned<'a>(&'a Shape, usize);

impl Serialize for Turned<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let turned = |shape| Turned(shape, self.1);
        match self.0 {
            Shape::Unit => out.serialize_unit(),
            Shape::None => out.serialize_none(),
            Shape::Some(inner) => out.serialize_some(&turned(inner)),
            Shape::Bool(v) => out.serialize_bool(*v),
            Shape::Int(v) => out.serialize_i128(*v),
            Shape::Unsigned(v) => out.serialize_u128(*v),
            Shape::F32(v) => out.serialize_f32(f32::from_bits(*v)),
            Shape::F64(v) => out.serialize_f64(f64::from_bits(*v)),
            Shape::Char(v) => out.serialize_char(*v),
            Shape::Str(v) => out.serialize_str(v),
            Shape::Bytes(v) => out.serialize_bytes(v),
            Shape::UnitVariant(name) => out.serialize_unit_variant("E", 0, name),
            Shape::Variant(name, inner) => {
                out.serialize_newtype_variant("E", 0, name, &turned(inner))
            }
            Shape::Seq(list) => {
                // A wrong hint, which must not count.
                let mut seq = out.serialize_seq(Some(self.1))?;
                for element in list {
                    seq.serialize_element(&turned(element))?;
                }
                seq.end()
            }
            Shape::Map(entries) => {
                let mut map = out.serialize_map(None)?;
                let start = self.1 % entries.len().max(1);
                for (key, value) in entries.iter().skip(start).chain(entries.iter().take(start)) {
                    map.serialize_entry(&turned(key), &turned(value))?;
                }
                map.end()
            }
        }
    }
}

impl Shape {
    /// Integers are alike whatever their type.
    fn normal(self) -> Self {
        match self {
            Self::Unsigned(v) if v <= i128::MAX as u128 => Self::Int(v as i128),
            Self::Some(inner) => Self::Some(Box::new(inner.normal())),
            Self::Variant(name, inner) => Self::Variant(name, Box::new(inner.normal())),
            Self::Seq(list) => Self::Seq(list.into_iter().map(Self::normal).collect()),
            Self::Map(map) => Self::Map(
                map.into_iter()
                    .map(|(k, v)| (k.normal(), v.normal()))
                    .collect(),
            ),
            other => other,
        }
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    let names = || prop::sample::select(vec!["A", "B", "AB"]);
    let leaf = prop_oneof![
        Just(Shape::Unit),
        Just(Shape::None),
        any::<bool>().prop_map(Shape::Bool),
        prop_oneof![-2_i128..3, any::<i128>()].prop_map(Shape::Int),
        prop_oneof![0_u128..3, any::<u128>()].prop_map(Shape::Unsigned),
        prop_oneof![Just(0_u32), any::<u32>()].prop_map(Shape::F32),
        prop_oneof![Just(0_u64), any::<u64>()].prop_map(Shape::F64),
        prop::sample::select(vec!['a', '\0']).prop_map(Shape::Char),
        "[ab\u{0}\u{b}]{0,3}".prop_map(Shape::Str),
        prop::collection::vec(0_u8..2, 0..3).prop_map(Shape::Bytes),
        names().prop_map(Shape::UnitVariant),
        // Long enough to be replaced by its digest, or nearly.
        (4080_usize..4110).prop_map(|n| Shape::Str("y".repeat(n))),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            inner.clone().prop_map(|v| Shape::Some(Box::new(v))),
            (names(), inner.clone()).prop_map(|(n, v)| Shape::Variant(n, Box::new(v))),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Shape::Seq),
            prop::collection::vec((inner.clone(), inner), 0..4)
                .prop_map(|entries| Shape::Map(entries.into_iter().collect())),
        ]
    })
    .prop_map(Shape::normal)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn key_09_the_order_of_entries_does_not_count(value in shape(), a in 0_usize..9, b in 0_usize..9) {
        prop_assert_eq!(form(&Turned(&value, a))?, form(&Turned(&value, b))?);
    }

    #[test]
    fn different_values_have_different_forms(a in shape(), b in shape()) {
        prop_assert_eq!(a == b, form(&Turned(&a, 0))? == form(&Turned(&b, 0))?);
    }

    /// Neighbours: one step of nesting or one element apart.
    #[test]
    fn neighbours_have_different_forms(a in shape(), b in shape()) {
        let forms = [
            a.clone(),
            Shape::Some(Box::new(a.clone())),
            Shape::Seq(vec![]),
            Shape::Seq(vec![a.clone()]),
            Shape::Seq(vec![a.clone(), b.clone()]),
            Shape::Seq(vec![Shape::Seq(vec![a.clone()]), b.clone()]),
            Shape::Seq(vec![Shape::Seq(vec![a.clone(), b.clone()])]),
            Shape::Map(BTreeMap::from([(a, b)])),
        ];
        for (i, first) in forms.iter().enumerate() {
            for second in &forms[..i] {
                prop_assert_eq!(first == second, form(&Turned(first, 0))? == form(&Turned(second, 0))?);
            }
        }
    }

    #[test]
    fn no_form_is_the_beginning_of_another(a in shape(), b in shape()) {
        let (a, b) = (form(&Turned(&a, 0))?, form(&Turned(&b, 0))?);
        prop_assert!(a == b || !b.starts_with(&a));
    }
}

fn of<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    form(value).unwrap()
}

#[test]
fn integers_count_by_value() {
    assert_eq!(of(&5_u8), of(&5_u64));
    assert_eq!(of(&5_u8), of(&5_i32));
    assert_eq!(of(&5_u8), of(&5_u128));
    assert_eq!(of(&-5_i8), of(&-5_i128));
    assert_ne!(of(&255_u8), of(&-1_i8));
    assert_ne!(of(&u128::MAX), of(&-1_i128));
    assert_ne!(of(&i128::MIN), of(&i128::MAX));
    assert_eq!(of(&0_u8), [0x20]);
    assert_eq!(of(&u64::MAX)[0], 0x28);
}

#[test]
fn nothing_is_nothing_else() {
    let forms = [
        of(&None::<Option<u8>>),
        of(&Some(None::<u8>)),
        of(&Some(())),
        of(&()),
        of(""),
        of(&0),
        of(&false),
        of(&Vec::<u8>::new()),
        of(&HashMap::<u8, u8>::new()),
        of(&HashSet::<u8>::new()),
        of(&'\0'),
        of(&0.0_f64),
        of(&-0.0_f64),
        of(&0.0_f32),
    ];
    let distinct: BTreeSet<_> = forms.iter().collect();
    assert_eq!(distinct.len(), forms.len());
}

#[test]
fn floats_count_by_bits() {
    assert_ne!(of(&(0.1 + 0.2)), of(&0.3));
    assert_ne!(
        of(&f64::from_bits(0x7ff8_0000_0000_0001)),
        of(&f64::from_bits(0x7ff8_0000_0000_0002))
    );
    assert_eq!(of(&3.0), of(&(1.5 * 2.0)));
}

#[derive(Serialize)]
struct Here {
    a: u8,
    b: Option<u8>,
}

#[derive(Serialize)]
struct Reordered {
    b: Option<u8>,
    a: u8,
}

#[derive(Serialize)]
struct Flat {
    #[serde(flatten)]
    inner: Here,
}

#[derive(Serialize)]
struct Sparse {
    a: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<u8>,
}

#[test]
fn key_09_fields_count_by_name_and_absent_is_not_null() {
    let here = of(&Here { a: 1, b: None });
    assert_eq!(here, of(&Reordered { a: 1, b: None }));
    assert_eq!(
        here,
        of(&Flat {
            inner: Here { a: 1, b: None }
        })
    );
    assert_ne!(here, of(&Sparse { a: 1, b: None }));
    assert_ne!(here, of(&Here { a: 1, b: Some(0) }));
    assert_eq!(
        of(&Sparse { a: 1, b: None }),
        of(&BTreeMap::from([("a", 1)]))
    );
}

#[test]
fn key_09_sets_are_sorted_and_lists_are_not() {
    let names: Vec<String> = (0..100).map(|i| format!("n{i}")).collect();
    let forwards: HashSet<_> = names.iter().collect();
    let backwards: HashSet<_> = names.iter().rev().collect();
    assert_eq!(of(&forwards), of(&backwards));
    assert_eq!(of(&vec![&forwards]), of(&vec![&backwards]));
    let fewer: HashSet<_> = names.iter().skip(1).collect();
    assert_ne!(of(&forwards), of(&fewer));
    assert_ne!(of(&[1, 2]), of(&[2, 1]));
    assert_eq!(
        of(&BinaryHeap::from([1, 2, 3, 4])),
        of(&[4, 3, 2, 1].into_iter().collect::<BinaryHeap<_>>())
    );
    let nested = |order: [u8; 3]| -> HashSet<BTreeMap<String, BTreeSet<u8>>> {
        order
            .iter()
            .map(|n| BTreeMap::from([(format!("k{n}"), BTreeSet::from([*n, 9]))]))
            .collect()
    };
    assert_eq!(of(&nested([1, 2, 3])), of(&nested([3, 1, 2])));
}

#[test]
fn large_values_have_short_forms() {
    let body = vec![7_u8; 1_000_000];
    assert_eq!(of(&body).len(), 33);
    let mut other = body.clone();
    other[999_999] = 8;
    assert_ne!(of(&body), of(&other));
    // Entries are shortened one by one, so their order still does not count.
    let big = |name: &str| (name.to_owned(), "z".repeat(5000));
    assert_eq!(
        of(&HashMap::from([big("a"), big("b"), big("c")])),
        of(&HashMap::from([big("c"), big("a"), big("b")]))
    );
    assert_ne!(of(&[big("a")]), of(&[big("b")]));
}

struct Endless;

impl Serialize for Endless {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq([Endless])
    }
}

struct Spiteful;

impl Serialize for Spiteful {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("out of order"))
    }
}

/// Asks for another form while its own is being written.
struct Nested;

impl Serialize for Nested {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_bytes(&form("inner").map_err(serde::ser::Error::custom)?)
    }
}

#[test]
fn depth_is_bounded_and_errors_leave_nothing_behind() {
    let fresh = of(&("a", 1));
    assert!(matches!(form(&Endless), Err(CanonicalError::TooDeep)));
    assert_eq!(of(&("a", 1)), fresh);
    let error = form(&vec![("a", Spiteful)]).unwrap_err();
    assert_eq!(error.to_string(), "out of order");
    assert_eq!(of(&("a", 1)), fresh);
    assert_eq!(of(&(Nested, 1)), of(&(Nested, 1)));
}
