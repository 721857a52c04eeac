//! Values that a codec would not give back: refused before they are recorded.

use std::collections::{BTreeMap, HashMap};

use super::*;

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Marker;

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Holder<T> {
    id: u8,
    inner: Vec<T>,
}

fn hold<T>(inner: T) -> Holder<T> {
    Holder {
        id: 1,
        inner: vec![inner],
    }
}

#[test]
fn ser_01_unit_in_an_option_is_never_none() {
    let text = refusal(&Some(()), CodecId::Json);
    assert!(text.contains("reads back as another value"), "{text}");
    refusal(&Some(Marker), CodecId::Json);
    refusal(&Some(None::<u8>), CodecId::Json);
    let text = refusal(&hold(Some(Marker)), CodecId::Json);
    assert!(text.contains("at `inner[0]`"), "{text}");
    survives_or_is_refused(Some(()));
    survives_or_is_refused(Some(Marker));
    survives_or_is_refused(hold(Some(())));
}

#[test]
fn ser_03_nan_and_infinity_are_refused_by_json_with_their_place() {
    for float in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        refusal(&float, CodecId::Json);
        let text = refusal(&vec![1.0, float], CodecId::Json);
        assert!(text.contains("`[1]` is not a finite number"), "{text}");
        let text = refusal(&hold(float), CodecId::Json);
        assert!(text.contains("`inner[0]` is not a finite number"), "{text}");
        let text = refusal(&hold(Some(float)), CodecId::Json);
        assert!(text.contains("at `inner[0]`"), "{text}");
        refusal(&float.to_string().parse::<f32>().unwrap(), CodecId::Json);
    }
}

#[cfg(feature = "msgpack")]
#[test]
fn ser_03_messagepack_keeps_them() {
    for float in [
        f64::NAN,
        f64::INFINITY,
        f64::from_bits(0x7ff8_0000_0000_0001),
    ] {
        let stored = encode_ok(&float, CodecId::MessagePack, 0, Some(PartialEq::eq)).unwrap();
        assert_eq!(
            decode_ok::<f64>(&stored).unwrap().to_bits(),
            float.to_bits()
        );
    }
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Wide {
    n: i128,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Flat {
    #[serde(flatten)]
    wide: Wide,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
#[serde(untagged)]
enum Untagged {
    Wide(u128),
    Name(String),
}

#[test]
fn ser_06_wide_integers_that_do_not_read_are_refused() {
    let flat = Flat {
        wide: Wide { n: i128::MAX },
    };
    let text = refusal(&flat, CodecId::Json);
    assert!(text.contains("`n` is a 128-bit integer"), "{text}");
    survives_or_is_refused(flat);
    survives_or_is_refused(Flat {
        wide: Wide { n: 1 },
    });
    survives_or_is_refused(Untagged::Wide(u128::MAX));
    survives_or_is_refused(Untagged::Wide(5));
    survives_or_is_refused(Untagged::Name("5".to_owned()));
}

#[test]
fn ser_07_keys_without_a_text_are_refused_with_their_place() {
    let text = refusal(&HashMap::from([((1_u8, 2_u8), 3)]), CodecId::Json);
    assert!(text.contains("key must be a string"), "{text}");
    assert!(
        text.contains("the value itself is a map whose keys have no text"),
        "{text}"
    );
    let text = refusal(&hold(HashMap::from([([0_u8; 32], 3)])), CodecId::Json);
    assert!(text.contains("`inner[0]` is a map"), "{text}");
    survives_or_is_refused(HashMap::from([((1_u8, 2_u8), 3)]));
    survives_or_is_refused(BTreeMap::from([(Some(1_u8), 3), (None, 4)]));
    survives_or_is_refused(BTreeMap::from([(Some("null".to_owned()), 3), (None, 4)]));
}

#[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
struct Session {
    id: u8,
    #[serde(skip)]
    token: String,
}

#[test]
fn ser_09_a_skipped_field_is_found_by_equality() {
    let session = Session {
        id: 1,
        token: "secret".to_owned(),
    };
    for codec in codecs() {
        let text = refusal_with(&session, codec, Some(PartialEq::eq));
        assert!(text.contains("#[serde(skip)]"), "{text}");
        assert!(!text.contains("secret"), "{text}");
        // A default is what comes back.
        let blank = Session {
            token: String::new(),
            ..session.clone()
        };
        assert!(encode_ok(&blank, codec, 0, Some(PartialEq::eq)).is_ok());
    }
}

/// Holds a NaN where it is not stored, so that it never equals itself.
#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Unequal {
    #[serde(skip)]
    nan: f64,
    id: u8,
}

#[test]
fn ser_09_a_value_that_is_not_equal_to_itself_is_judged_by_its_form() {
    let value = Unequal {
        nan: f64::NAN,
        id: 1,
    };
    assert!(encode_ok(&value, CodecId::Json, 0, Some(PartialEq::eq)).is_ok());
}

/// Equal whatever the order, as a type with its own idea of equality may be.
#[derive(Serialize, Deserialize, Debug)]
#[serde(from = "Vec<u8>")]
struct Shuffling(Vec<u8>);

impl From<Vec<u8>> for Shuffling {
    fn from(mut list: Vec<u8>) -> Self {
        list.reverse();
        Self(list)
    }
}

#[test]
fn another_order_needs_the_types_own_word() {
    let value = Shuffling(vec![1, 2]);
    let text = refusal(&value, CodecId::Json);
    assert!(text.contains("at `[0]`"), "{text}");
    refusal_with(&value, CodecId::Json, Some(|a, b| a.0 == b.0));
    let set_like = |a: &Shuffling, b: &Shuffling| a.0.len() == b.0.len();
    assert!(encode_ok(&value, CodecId::Json, 0, Some(set_like)).is_ok());
}

/// Reads back another text than it wrote.
#[derive(Serialize, Deserialize, Debug)]
#[serde(from = "String")]
struct Trimmed(String);

impl From<String> for Trimmed {
    fn from(text: String) -> Self {
        Self(text.trim().to_owned())
    }
}

#[test]
fn the_place_of_a_difference_is_named_in_maps_too() {
    let value = BTreeMap::from([
        ("plain".to_owned(), Trimmed("a".to_owned())),
        ("padded".to_owned(), Trimmed(" a".to_owned())),
    ]);
    let text = refusal(&value, CodecId::Json);
    assert!(text.contains("at `padded`"), "{text}");
    // A key that may be somebody's data is not shown.
    let value = BTreeMap::from([("a@b.example".to_owned(), Trimmed(" a".to_owned()))]);
    let text = refusal(&value, CodecId::Json);
    assert!(text.contains("at `[..]`"), "{text}");
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Deep(Option<Box<Deep>>);

#[test]
fn depth_is_an_error() {
    let deep = |levels| (0..levels).fold(Deep(None), |inner, _| Deep(Some(Box::new(inner))));
    for codec in codecs() {
        let text = refusal(&deep(10_000), codec);
        assert!(text.contains("deeper than 256 levels"), "{text}");
    }
    #[derive(Serialize, Deserialize)]
    struct List {
        next: Option<Box<List>>,
    }
    let list = |levels| {
        (0..levels).fold(List { next: None }, |inner, _| List {
            next: Some(Box::new(inner)),
        })
    };
    for codec in codecs() {
        assert!(encode_ok(&list(100), codec, 0, None).is_ok());
        refusal(&list(130), codec);
    }
}
