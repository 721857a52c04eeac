//! Values that every codec gives back.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::*;

#[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
enum State {
    Unit,
    New(u8),
    Tuple(u8, String),
    Struct { a: Option<u8> },
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
#[serde(tag = "kind")]
enum Tagged {
    Paid { at: u64 },
    Open,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Order {
    id: u64,
    states: Vec<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(flatten)]
    tagged: Tagged,
    addr: std::net::IpAddr,
    since: std::time::Duration,
}

#[test]
fn ordinary_values_survive() {
    survives(Order {
        id: 1,
        states: vec![
            State::Unit,
            State::New(1),
            State::Tuple(2, "a\0b\"\\\n🦀".to_owned()),
            State::Struct { a: None },
        ],
        note: None,
        tagged: Tagged::Paid { at: u64::MAX },
        addr: std::net::IpAddr::from([127, 0, 0, 1]),
        since: std::time::Duration::new(5, 6),
    });
    survives(Tagged::Open);
}

#[test]
fn empty_values_are_results() {
    survives(());
    survives(None::<u8>);
    survives(0);
    survives(false);
    survives(String::new());
    survives(Vec::<u8>::new());
    survives(HashMap::<String, u8>::new());
    survives([0_u8; 0]);
}

#[test]
fn ser_04_floats_survive_bit_by_bit() {
    let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
    let random = std::iter::repeat_with(|| {
        bits = bits
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        f64::from_bits(bits)
    });
    let values: Vec<f64> = [
        0.999_999_999_999_999_9,
        117.633_311_394_000_17,
        1.577_777_777_777_000_1,
        0.0,
        -0.0,
        f64::MIN_POSITIVE,
        5e-324,
        f64::MAX,
        1e21,
    ]
    .into_iter()
    .chain(random.filter(|f| f.is_finite()).take(10_000))
    .collect();
    let narrow: Vec<f32> = values
        .iter()
        .map(|f| *f as f32)
        .filter(|f| f.is_finite())
        .collect();
    for codec in codecs() {
        let back = trip(&values, codec).unwrap();
        assert!(
            values
                .iter()
                .zip(&back)
                .all(|(a, b)| a.to_bits() == b.to_bits())
        );
        let back = trip(&narrow, codec).unwrap();
        assert!(
            narrow
                .iter()
                .zip(&back)
                .all(|(a, b)| a.to_bits() == b.to_bits())
        );
        assert_eq!(
            trip(&-0.0_f64, codec).unwrap().to_bits(),
            (-0.0_f64).to_bits()
        );
    }
}

#[test]
fn ser_06_wide_integers_survive() {
    survives(u64::MAX);
    survives(i64::MIN);
    survives(u128::MAX);
    survives(i128::MIN);
    survives(vec![Some(i128::MAX)]);
}

#[test]
fn ser_07_integer_keys_survive() {
    survives(BTreeMap::from([
        (1_u64, "a".to_owned()),
        (u64::MAX, "b".to_owned()),
    ]));
    survives(HashMap::from([(-1_i32, 1)]));
    survives(BTreeMap::from([(true, 1)]));
    survives(BTreeMap::from([('x', 1)]));
}

/// A type whose own equality is all there is: it hands its table out as a list, since JSON has no
/// tuple keys.
#[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
#[serde(from = "Vec<((u8, u8), u8)>", into = "Vec<((u8, u8), u8)>")]
struct Table(HashMap<(u8, u8), u8>);

impl From<Vec<((u8, u8), u8)>> for Table {
    fn from(list: Vec<((u8, u8), u8)>) -> Self {
        Self(list.into_iter().collect())
    }
}

impl From<Table> for Vec<((u8, u8), u8)> {
    fn from(table: Table) -> Self {
        table.0.into_iter().collect()
    }
}

#[test]
fn key_09_iteration_order_is_no_reason_to_refuse() {
    for _ in 0..20 {
        survives(
            (0..50)
                .map(|i| (format!("k{i}"), i))
                .collect::<HashMap<_, _>>(),
        );
        survives((0..50).map(|i| vec![i; 3]).collect::<HashSet<Vec<u32>>>());
        survives(vec![Some(HashSet::from(["a".to_owned(), "b".to_owned()]))]);
        survives(Table((0..50).map(|i| ((i, i / 2), i)).collect()));
    }
}

#[test]
fn ser_15_none_and_empty_are_not_confused() {
    survives(None::<Vec<u8>>);
    survives(Some(Vec::<u8>::new()));
    survives(Some(vec![0xff_u8, 0]));
    survives(Some(String::new()));
    survives(vec![None, Some(vec![1_u8])]);
    survives_or_is_refused(Some(None::<u8>));
}

#[test]
fn pg_04_nul_survives() {
    survives("\0".to_owned());
    survives("a\0b".to_owned());
    for codec in codecs() {
        let stored = encode_err(&"e\0".to_owned(), codec, 0).unwrap();
        assert_eq!(decode_err::<String>(&stored).unwrap(), "e\0");
    }
}
