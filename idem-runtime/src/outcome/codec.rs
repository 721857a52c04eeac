use std::error::Error as StdError;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::CodecId;

pub(super) type Cause = Box<dyn StdError + Send + Sync>;

impl CodecId {
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Json, Self::MessagePack]
            .into_iter()
            .find(|codec| *codec as u8 == byte)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::MessagePack => "MessagePack",
        }
    }
}

/// Appends the value's encoding.
pub(super) fn write<T: Serialize>(
    codec: CodecId,
    value: &T,
    out: &mut Vec<u8>,
) -> Result<(), Cause> {
    match codec {
        CodecId::Json => Ok(serde_json::to_writer(out, value)?),
        CodecId::MessagePack => msgpack::write(value, out),
    }
}

/// Decodes a value that takes all of `bytes`.
pub(super) fn read<T: DeserializeOwned>(codec: CodecId, bytes: &[u8]) -> Result<T, Cause> {
    match codec {
        CodecId::Json => Ok(serde_json::from_slice(bytes)?),
        CodecId::MessagePack => msgpack::read(bytes),
    }
}

#[cfg(feature = "msgpack")]
mod msgpack {
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use super::Cause;
    use crate::canonical::MAX_DEPTH;

    // Human-readable on both sides: serde buffers the content of flattened and untagged types and
    // reads it back as human-readable whatever the codec says, which fails for `IpAddr` and `Uuid`
    // written in binary.
    pub(super) fn write<T: Serialize>(value: &T, out: &mut Vec<u8>) -> Result<(), Cause> {
        let mut codec = rmp_serde::Serializer::new(out)
            .with_struct_map()
            .with_human_readable();
        Ok(value.serialize(&mut codec)?)
    }

    pub(super) fn read<T: DeserializeOwned>(mut bytes: &[u8]) -> Result<T, Cause> {
        let mut codec = rmp_serde::Deserializer::new(&mut bytes).with_human_readable();
        codec.set_max_depth(MAX_DEPTH);
        let value = T::deserialize(&mut codec)?;
        drop(codec);
        if bytes.is_empty() {
            Ok(value)
        } else {
            Err(format!("{} bytes follow the value", bytes.len()).into())
        }
    }
}

#[cfg(not(feature = "msgpack"))]
mod msgpack {
    use super::Cause;

    const MISSING: &str =
        "this build has no MessagePack; enable the feature `msgpack` of `idem-rs`";

    pub(super) fn write<T>(_: &T, _: &mut Vec<u8>) -> Result<(), Cause> {
        Err(MISSING.into())
    }

    pub(super) fn read<T>(_: &[u8]) -> Result<T, Cause> {
        Err(MISSING.into())
    }
}

/// The cause in words, without the recorded data that serde quotes when it finds another type or
/// value than it expects. The whole text remains in the error's source.
pub(super) fn public_text(cause: &Cause) -> String {
    let text = cause.to_string();
    let quotes = text.starts_with("invalid type: ") || text.starts_with("invalid value: ");
    match (text.find(['"', '`']), text.rfind(", expected ")) {
        (Some(from), Some(to)) if quotes && from < to => {
            format!("{}..{}", &text[..from], &text[to..])
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::public_text;

    #[test]
    fn recorded_data_is_not_quoted() {
        for (cause, shown) in [
            (
                "invalid type: string \"4111, expected\", expected u8 at line 1",
                "invalid type: string .., expected u8 at line 1",
            ),
            (
                "invalid value: integer `300`, expected u8",
                "invalid value: integer .., expected u8",
            ),
            (
                "invalid type: null, expected f64 at line 1 column 4",
                "invalid type: null, expected f64 at line 1 column 4",
            ),
            ("missing field `currency`", "missing field `currency`"),
        ] {
            assert_eq!(public_text(&cause.into()), shown);
        }
    }
}
