//! Keys and record ids.

use idem_runtime::ErrorKind;
use idem_runtime::key::{Key, KeyBuilder, KeyPart, MAX_KEY_BYTES, RecordId};
use proptest::prelude::*;

/// A key of these parts with `separators[i]` between part `i` and the next one.
fn key(separators: &[String], parts: &[String]) -> Result<Key, idem_runtime::Error> {
    // As generated code passes it: what stands between two holes and is not alphanumeric.
    let escaped: String = separators
        .iter()
        .flat_map(|s| s.chars())
        .filter(|c| !c.is_alphanumeric())
        .collect();
    let mut builder = KeyBuilder::new(escaped.leak());
    builder.literal("k:");
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            builder.literal(&separators[i - 1]);
        }
        builder.part(part);
    }
    builder.finish()
}

fn text(separators: &[&str], parts: &[&str]) -> String {
    let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    key(&owned(separators), &owned(parts)).map_or_else(
        |e| format!("refused: {:?}", e.kind()),
        |key| key.as_str().to_owned(),
    )
}

fn separator() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            ":", "/", "::", " ", "-x-", "%", "%2", "1%", "}{", "\n", "é|ß"
        ])
        .prop_map(str::to_owned),
        "[a-c]{0,2}[:%|.][a-c0-9%]{0,2}",
    ]
}

/// Strings that like to collide, and any strings.
fn part() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a:%/|x{}0-3AF\n\u{0}]{1,5}",
        1 => "\\PC{1,8}",
        1 => any::<String>(),
    ]
    .prop_filter("blank parts are refused", |part| {
        key(&[], std::slice::from_ref(part)).is_ok()
    })
}

fn two_lists() -> impl Strategy<Value = (Vec<String>, Vec<String>, Vec<String>)> {
    (1_usize..4).prop_flat_map(|n| {
        (
            prop::collection::vec(separator(), n - 1),
            prop::collection::vec(part(), n),
            prop::collection::vec(part(), n),
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn key_01_distinct_parts_give_distinct_keys((separators, a, b) in two_lists()) {
        let (first, second) = (key(&separators, &a)?, key(&separators, &b)?);
        prop_assert_eq!(a == b, first == second);
    }

    /// Cuts one text into parts at two places: the pairs that a plain join would confuse.
    #[test]
    fn key_01_moving_the_border_changes_the_key(
        separator in separator(),
        whole in prop::collection::vec(part(), 2..5),
        cut in 1_usize..4,
        other in 1_usize..4,
    ) {
        let split = |at: usize| {
            let at = at.min(whole.len() - 1);
            [whole[..at].join(&separator), whole[at..].join(&separator)]
        };
        let (a, b) = (split(cut), split(other));
        let separators = [separator.clone()];
        prop_assert_eq!(a == b, key(&separators, &a)? == key(&separators, &b)?);
    }
}

#[test]
fn key_01_separators_inside_values_are_escaped() {
    assert_eq!(text(&[":"], &["x:y", "z"]), "k:x%3Ay:z");
    assert_eq!(text(&[":"], &["x", "y:z"]), "k:x:y%3Az");
    assert_eq!(text(&[":"], &["100%", "a\0b"]), "k:100%25:a%00b");
    assert_eq!(text(&["{"], &["{", "}"]), "k:%7B{}");
    // A percent sign that separates is no escape.
    assert_ne!(text(&["%"], &["a%", "0A"]), text(&["%"], &["a", "25\n"]));
}

#[test]
fn key_02_a_blank_part_is_refused() {
    assert_eq!(text(&["/"], &["", ""]), "refused: EmptyKeyPart");
    for blank in [
        "",
        " ",
        "\t",
        "\r\n",
        "\0",
        "\u{7f}",
        "\u{85}",
        "\u{a0}",
        "\u{ad}",
        "\u{2003}",
        "\u{200b}",
        "\u{200e}",
        "\u{2028}",
        "\u{2060}",
        "\u{2800}",
        "\u{3000}",
        "\u{3164}",
        "\u{fe0f}",
        "\u{feff}",
        "\u{e0020}",
        " \u{200b}\t",
    ] {
        assert_eq!(
            text(&["/"], &["a", blank]),
            "refused: EmptyKeyPart",
            "{blank:?}"
        );
        let visible = format!("{blank}1");
        assert!(
            text(&["/"], &["a", &visible]).starts_with("k:a/"),
            "{blank:?}"
        );
    }
    for visible in ["-", "🦀", "é", "订", "."] {
        assert!(
            text(&["/"], &["a", visible]).starts_with("k:a/"),
            "{visible:?}"
        );
    }
    assert_eq!(text(&["/"], &["a", "None"]), "k:a/None");
}

#[cfg(feature = "rust_decimal")]
#[test]
fn key_06_equal_decimals_have_one_text() {
    let of = |unscaled, scale| {
        let mut builder = KeyBuilder::new("");
        builder.part(&rust_decimal::Decimal::new(unscaled, scale));
        builder.finish().map(|key| key.as_str().to_owned()).ok()
    };
    assert_eq!(of(100, 1), Some("10".to_owned()));
    assert_eq!(of(100, 1), of(1000, 2));
}

#[test]
fn pg_04_a_nul_is_escaped() {
    let text = text(&[":"], &["e", "a\0"]);
    assert_eq!(text, "k:e:a%00");
    assert!(!text.contains('\0'));
}

#[test]
fn pg_06_the_limit_does_not_depend_on_the_content() {
    let hex: String = (0..MAX_KEY_BYTES)
        .map(|i| char::from(b"0123456789abcdef"[(i * 7 + i / 5) % 16]))
        .collect();
    let same = "x".repeat(MAX_KEY_BYTES);
    for whole in [&hex, &same] {
        for length in [3000, 5000, MAX_KEY_BYTES] {
            let mut builder = KeyBuilder::new("");
            builder.part(&whole[..length]);
            assert!(builder.finish().is_ok(), "{length}");
        }
        let mut builder = KeyBuilder::new("");
        builder.literal("k");
        builder.part(whole.as_str());
        let error = builder.finish().err().map(|e| e.kind());
        assert_eq!(error, Some(ErrorKind::KeyTooLong));
    }
}

#[test]
fn parts_behind_pointers_have_the_text_of_what_they_point_to() {
    fn text<P: KeyPart + ?Sized>(part: &P) -> Option<String> {
        let mut builder = KeyBuilder::new("");
        builder.part(part);
        builder.finish().map(|key| key.as_str().to_owned()).ok()
    }
    let plain = text("a");
    assert_eq!(text(&"a".to_owned()), plain);
    assert_eq!(text(&std::sync::Arc::<str>::from("a")), plain);
    assert_eq!(text(&std::borrow::Cow::Borrowed("a")), plain);
    assert_eq!(text(&[0xab_u8, 0x01]), Some("ab01".to_owned()));
}

/// Calculated by another implementation of the documented algorithm; they hold for every build and
/// platform.
#[test]
#[allow(clippy::type_complexity)] // a table
fn lk_06_record_ids_and_lock_numbers_never_change() {
    let long = "x".repeat(5000);
    #[rustfmt::skip]
    let golden: &[(&str, &str, &[&str], &str, &str, i64)] = &[
        ("", "order.create", &[], "order:m1:1", "dd99f2cb30523c467de153727474d94f", -2478683165387768762),
        ("", "order.create", &[], "order:m1:2", "718a773ffca75b2dad71ed1d383912c1", 8181482789777398573),
        ("", "order.create", &[], "order:M1:1", "427f5db0d83f96a8a64f6c437b2f77d2", 4791651542669170344),
        ("", "order.create", &[], "order:m1:%2", "e420563672eb69dfdf348446b939f0c0", -2008510641950987809),
        ("", "order.create", &[], "1", "d7717be0f948615b5675d90c234bc1f9", -2922418477001580197),
        ("", "order.create", &[], "01", "a4d9d93ce4b79ece64a78522e7d2ba9e", -6567979725984653618),
        ("", "order.create", &[], "-1", "f3b9105b4ec0c27b4d6dcd7c46d5535d", -884657867452267909),
        ("", "order.create", &[], "", "b488bb6cd2053dd3c616cb665f6e91f5", -5437890473995452973),
        ("", "order.cancel", &[], "order:m1:1", "77b0d8f8fa23c495f4eca44387ffb0a7", 8624631850274636949),
        ("eu", "order.create", &[], "order:m1:1", "fcf64c5baea807a2bb736fe09734e11f", -218903575224907870),
        ("", "order.create", &["shop::Card"], "order:m1:1", "88cfba884dcfabccfb89313355e68aa5", -8588440869788472372),
        ("", "order.create", &["shop::Card", "shop::Eur"], "order:m1:1", "d8e2ea6c99573be0177655575d3a34ee", -2818432664630510624),
        ("e", "uorder.create", &[], "order:m1:1", "dfa60412bbc11d0f5a01c93dad0d41d1", -2331171278611735281),
        ("", "pay", &[], "e\u{301}", "d8670b841ece32c2e3d8ca191e23ced6", -2853299176835501374),
        ("", "pay", &[], "é", "7e4edfc2a19c22448729c8b9052ea989", 9101457923990364740),
        ("", "pay", &[], "日本語", "652cd24d0a3a2888716db7ada303920a", 7290433125131888776),
        ("", "pay", &[], "🦀", "e1fc605ffab2dc26e84d19b05fb86103", -2162747755700495322),
        ("", "pay", &[], "a%00b", "36c950c1cda9b49bc9d3ddfddbf95b9a", 3947775341676311707),
        ("", "pay", &[], "67e55044-10b1-426f-9247-bb680e5fe0c8", "396499b9f3d582145f8aeebd047c8c1b", 4135599381771813396),
        ("", "pay", &[], &long, "1a0d5e1d93cfe71cc483dc15afe548e6", 1877260100810303260),
    ];
    assert_eq!(golden.len(), 20);
    for (namespace, scope, types, key, id, lock) in golden {
        let record = RecordId::new(namespace, scope, types, key);
        assert_eq!(record.to_string(), *id, "{scope} {key}");
        assert_eq!(record.lock_number(), *lock, "{scope} {key}");
        assert_eq!(RecordId::from_bytes(*record.as_bytes()), record);
    }
}
