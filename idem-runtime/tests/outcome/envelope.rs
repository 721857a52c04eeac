//! The bytes around a payload, and records that do not read.

use super::*;

fn detail(error: &idem_runtime::Error) -> String {
    assert_eq!(error.kind(), ErrorKind::OutcomeUndecodable);
    error.to_string()
}

fn unreadable(envelope: &[u8]) -> String {
    detail(&decode_ok::<u8>(envelope).unwrap_err())
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Paid {
    id: u64,
    note: Option<String>,
}

fn paid() -> Paid {
    Paid { id: 7, note: None }
}

#[test]
fn golden_bytes_never_change() {
    assert_eq!(
        encode_ok(&paid(), CodecId::Json, 2, None).unwrap(),
        b"\x01\x01\x01\0\0\0\x02{\"id\":7,\"note\":null}".as_slice()
    );
    assert_eq!(
        encode_err(&"gone".to_owned(), CodecId::Json, 0x0102_0304).unwrap(),
        b"\x01\x02\x01\x01\x02\x03\x04\"gone\"".as_slice()
    );
    assert_eq!(tombstone(), b"\x01\x03\0\0\0\0\0".as_slice());
    assert_eq!(
        oversize(0x1_0000),
        b"\x01\x04\0\0\0\0\0\0\0\0\0\0\x01\0\0".as_slice()
    );
}

#[cfg(feature = "msgpack")]
#[test]
fn golden_bytes_of_messagepack_never_change() {
    assert_eq!(
        encode_ok(&paid(), CodecId::MessagePack, 0, None).unwrap(),
        b"\x01\x01\x02\0\0\0\0\x82\xa2id\x07\xa4note\xc0".as_slice()
    );
}

#[test]
fn what_is_recorded_is_told_apart() {
    let ok = encode_ok(&1, CodecId::Json, 0, None).unwrap();
    let err = encode_err(&1, CodecId::Json, 0).unwrap();
    assert_eq!(recorded(&ok).unwrap(), Recorded::Ok(b"1"));
    assert_eq!(recorded(&err).unwrap(), Recorded::Err(b"1"));
    assert_eq!(recorded(&tombstone()).unwrap(), Recorded::Tombstone);
    assert!(matches!(
        recorded(&oversize(5)).unwrap(),
        Recorded::Oversize { bytes: 5, .. }
    ));
    assert!(is_err(&err));
    assert!(!is_err(&ok) && !is_err(&tombstone()) && !is_err(b"") && !is_err(b"\x09\x02"));
    assert_eq!(decode_err::<u8>(&err).unwrap(), 1);
}

#[test]
fn what_does_not_read_is_named() {
    for (bytes, expected) in [
        (&b""[..], "has 0 bytes"),
        (b"\x01\x01\x01\0\0\0", "has 6 bytes"),
        (
            b"\x09\x01\x01\0\0\0\x001",
            "format version 9, this build reads 1",
        ),
        (b"\x01\x07\x01\0\0\0\x001", "unknown kind 7"),
        (
            b"\x01\x01\x63\0\0\0\x051",
            "unknown codec 99 (schema version 5)",
        ),
        (
            b"\x01\x02\x01\0\0\0\x001",
            "holds a final error, not an `Ok` value",
        ),
        (b"\x01\x01\x01\0\0\0\x001 1", "trailing characters"),
        (b"\x01\x01\x01\0\0\0\0", "EOF"),
    ] {
        let text = unreadable(bytes);
        assert!(text.contains(expected), "{text}");
    }
    assert!(recorded(b"\x01\x04\0\0\0\0\0").is_err());
}

#[test]
fn an_outcome_that_is_not_kept_is_gone_and_not_unreadable() {
    for (envelope, expected) in [
        (tombstone(), "holds a tombstone"),
        (oversize(70_000), "too large to be kept"),
    ] {
        let error = decode_ok::<u64>(&envelope).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeGone);
        assert_eq!(error.effect(), Effect::Done);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// The first version of a result type, then two later ones.
#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct V1 {
    id: u64,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct V2 {
    id: u64,
    currency: String,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct V2WithDefault {
    id: u64,
    #[serde(default)]
    currency: String,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct V3 {
    id: String,
    currency: String,
}

#[test]
fn ser_12_a_changed_type_is_an_error_that_names_both_versions() {
    for codec in codecs() {
        let v1 = encode_ok(&V1 { id: 1 }, codec, 1, None).unwrap();
        let v2 = V2 {
            id: 2,
            currency: "EUR".to_owned(),
        };
        let v2 = encode_ok(&v2, codec, 2, None).unwrap();
        let text = detail(&decode_ok_for::<V2>(&v1, 2).unwrap_err());
        let name = match codec {
            CodecId::Json => "JSON",
            _ => "MessagePack",
        };
        for part in [
            "V2` of schema version 2",
            "of schema version 1",
            name,
            "missing field `currency`",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let text = detail(&decode_ok_for::<V3>(&v2, 3).unwrap_err());
        assert!(text.contains("expected a string"), "{text}");
        // What the type can read is read, whatever the version says.
        assert_eq!(decode_ok_for::<V1>(&v2, 1).unwrap(), V1 { id: 2 });
        assert_eq!(decode_ok_for::<V2WithDefault>(&v1, 2).unwrap().currency, "");
        // Errors likewise.
        let stored = encode_err(&V1 { id: 1 }, codec, 1).unwrap();
        detail(&decode_err::<V2>(&stored).unwrap_err());
        assert_eq!(decode_err::<V1>(&stored).unwrap(), V1 { id: 1 });
    }
}

#[test]
fn an_error_does_not_show_recorded_data() {
    let stored = encode_ok(&"4111111111111111".to_owned(), CodecId::Json, 0, None).unwrap();
    let text = detail(&decode_ok::<u64>(&stored).unwrap_err());
    assert!(!text.contains("4111"), "{text}");
}

#[cfg(not(feature = "msgpack"))]
#[test]
fn ser_15_a_codec_that_is_not_built_in_is_named() {
    let text = unreadable(b"\x01\x01\x02\0\0\0\0\x07");
    assert!(text.contains("enable the feature `msgpack`"), "{text}");
    let text = refusal(&7, CodecId::MessagePack);
    assert!(text.contains("enable the feature `msgpack`"), "{text}");
}

#[cfg(feature = "msgpack")]
#[test]
fn ser_15_a_record_is_read_by_its_own_codec() {
    // The operation changed its codec in between; nothing but the record is asked.
    for codec in codecs() {
        let stored = encode_ok(&paid(), codec, 0, None).unwrap();
        assert_eq!(decode_ok::<Paid>(&stored).unwrap(), paid());
    }
    let text = unreadable(b"\x01\x01\x02\0\0\0\0\x07\x07");
    assert!(text.contains("1 bytes follow the value"), "{text}");
}
