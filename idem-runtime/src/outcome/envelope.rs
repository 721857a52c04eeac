//! The envelope: what stands before an outcome's payload.

use super::{CodecId, Recorded, undecodable};
use crate::error::Error;

/// Version of the envelope; its bytes never change within one version (golden-tested).
const VERSION: u8 = 1;

/// Version, kind, codec and schema version.
pub(super) const HEADER_BYTES: usize = 7;

/// What an envelope holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ok = 1,
    Err = 2,
    Tombstone = 3,
    Oversize = 4,
    Unrecordable = 5,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::Ok,
            Self::Err,
            Self::Tombstone,
            Self::Oversize,
            Self::Unrecordable,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }

    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Ok => "an `Ok` value",
            Self::Err => "a final error",
            Self::Tombstone => "a tombstone (the outcome was removed)",
            Self::Oversize => "only the size of an outcome that was too large to be kept",
            Self::Unrecordable => "only why its outcome could not be recorded",
        }
    }
}

pub(super) fn header(kind: Kind, codec: u8, schema: u32) -> [u8; HEADER_BYTES] {
    let [a, b, c, d] = schema.to_be_bytes();
    [VERSION, kind as u8, codec, a, b, c, d]
}

pub(super) struct Envelope<'a> {
    pub(super) kind: Kind,
    codec: u8,
    pub(super) schema: u32,
    pub(super) payload: &'a [u8],
}

impl<'a> Envelope<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        let Some((header, payload)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(undecodable(format!(
                "the record has {} bytes, which is no outcome",
                bytes.len()
            )));
        };
        let &[version, kind, codec, a, b, c, d] = header;
        if version != VERSION {
            return Err(undecodable(format!(
                "the record has the format version {version}, this build reads {VERSION}"
            )));
        }
        let kind = Kind::from_byte(kind)
            .ok_or_else(|| undecodable(format!("the record is of the unknown kind {kind}")))?;
        Ok(Self {
            kind,
            codec,
            schema: u32::from_be_bytes([a, b, c, d]),
            payload,
        })
    }

    pub(super) fn recorded(&self) -> Result<Recorded<'a>, Error> {
        Ok(match self.kind {
            Kind::Ok => Recorded::Ok(self.payload),
            Kind::Err => Recorded::Err(self.payload),
            Kind::Tombstone => Recorded::Tombstone,
            Kind::Unrecordable => Recorded::Unrecordable {
                reason: std::str::from_utf8(self.payload)
                    .map_err(|_| undecodable("the record's reason is not UTF-8".to_owned()))?,
            },
            Kind::Oversize => Recorded::Oversize {
                bytes: u64::from_be_bytes(self.payload.try_into().map_err(|_| {
                    undecodable("the record of an oversize outcome lacks its size".to_owned())
                })?),
            },
        })
    }

    pub(super) fn codec(&self) -> Result<CodecId, Error> {
        CodecId::from_byte(self.codec).ok_or_else(|| {
            undecodable(format!(
                "the record is in the unknown codec {} (schema version {})",
                self.codec, self.schema
            ))
        })
    }
}
