//! The envelope of an outcome, its codecs and the check before recording.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that fails may panic

use idem_runtime::outcome::{
    CodecId, Outcome, Recorded, decode_err, decode_ok, decode_ok_for, encode_err, encode_ok,
    is_err, oversize, recorded, tombstone,
};
use idem_runtime::{Effect, ErrorKind};
use serde::{Deserialize, Serialize};

#[path = "outcome/codecs.rs"]
mod codecs;
#[path = "outcome/envelope.rs"]
mod envelope;
#[path = "outcome/refused.rs"]
mod refused;

fn codecs() -> Vec<CodecId> {
    if cfg!(feature = "msgpack") {
        vec![CodecId::Json, CodecId::MessagePack]
    } else {
        vec![CodecId::Json]
    }
}

/// Records and replays.
fn trip<T: Outcome>(value: &T, codec: CodecId) -> Result<T, idem_runtime::Error> {
    decode_ok(&encode_ok(value, codec, 0, None)?)
}

/// The detail of the refusal.
fn refusal<T: Outcome>(value: &T, codec: CodecId) -> String {
    refusal_with(value, codec, None)
}

fn refusal_with<T: Outcome>(
    value: &T,
    codec: CodecId,
    equality: Option<fn(&T, &T) -> bool>,
) -> String {
    let error = encode_ok(value, codec, 0, equality).expect_err("is refused");
    assert_eq!(error.kind(), ErrorKind::OutcomeNotRecordable);
    let text = error.to_string();
    assert!(text.contains(std::any::type_name::<T>()), "{text}");
    text
}

fn survives<T: Outcome + PartialEq + std::fmt::Debug>(value: T) {
    for codec in codecs() {
        let stored = encode_ok(&value, codec, 0, Some(PartialEq::eq))
            .unwrap_or_else(|e| panic!("{codec:?} {value:?}: {e}"));
        assert_eq!(decode_ok::<T>(&stored).unwrap(), value, "{codec:?}");
    }
}

/// Every codec either gives the value back or refuses it.
fn survives_or_is_refused<T: Outcome + PartialEq + std::fmt::Debug>(value: T) {
    for codec in codecs() {
        match encode_ok(&value, codec, 0, Some(PartialEq::eq)) {
            Ok(stored) => assert_eq!(decode_ok::<T>(&stored).unwrap(), value, "{codec:?}"),
            Err(e) => assert_eq!(e.kind(), ErrorKind::OutcomeNotRecordable),
        }
    }
}
