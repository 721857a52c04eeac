//! The outcome: what the first run returned, as it is stored and replayed.
//!
//! # The envelope
//! | bytes | content |
//! |---|---|
//! | 1 | version of this format: 1 |
//! | 1 | kind: 1 `Ok`, 2 a final error, 3 tombstone, 4 oversize, 5 unrecordable |
//! | 1 | codec: 1 JSON, 2 MessagePack with named fields; 0 where there is no payload to decode |
//! | 4 | schema version of the outcome type, big-endian |
//! | rest | the payload |
//!
//! A record is read by the codec that is stored with it, whatever the operation uses by now. What
//! does not read is an error that names what was found, and never a reason to run again.
//!
//! # The check before recording
//! An outcome is recorded only when a replay gives the same value: it is encoded, decoded again, and
//! both values must have one [canonical form](crate::canonical), and be equal when their type is
//! `PartialEq`. What fails this (NaN in JSON, `Some(())`, a skipped field, a map with tuple keys, a
//! 128-bit integer inside `#[serde(flatten)]`) is refused while the effect can still be rolled back.
//! The first caller gets the value that was read back, as everybody after it does.

mod check;
mod codec;
mod envelope;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind};
use envelope::{Envelope, Kind};

/// The encoding of an outcome's payload. The number is stored with the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum CodecId {
    /// JSON.
    Json = 1,
    /// MessagePack with named fields; needs the feature `msgpack`.
    MessagePack = 2,
}

/// A value that can be recorded and replayed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be recorded as the outcome of an idempotent function",
    label = "a replay answers from the stored outcome: it must be `Serialize + DeserializeOwned`",
    note = "derive `serde::Serialize` and `serde::Deserialize`; borrowed data must become owned"
)]
pub trait Outcome: Serialize + DeserializeOwned {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> Outcome for T {}

/// The error type of an idempotent function.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry the errors of an idempotent function",
    label = "`From<idem::Error>` is missing for this error type",
    note = "add a variant for it, for example `#[error(transparent)] Idem(#[from] idem::Error)`"
)]
pub trait ServiceError: From<Error> {}

#[diagnostic::do_not_recommend]
impl<E: From<Error>> ServiceError for E {}

/// How a recorded outcome reads back.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recorded<'a> {
    /// `Ok` of the function: its payload.
    Ok(&'a [u8]),
    /// A final error of the function: its payload.
    Err(&'a [u8]),
    /// The effect is done; its outcome has been removed.
    Tombstone,
    /// The effect is done; its outcome was too large to be kept.
    #[non_exhaustive]
    Oversize {
        /// The size of the payload that was not kept.
        bytes: u64,
    },
    /// The body has ended; its outcome could not be recorded.
    #[non_exhaustive]
    Unrecordable {
        /// Why, without recorded data.
        reason: &'a str,
    },
}

/// Encodes an `Ok` value.
///
/// `equality` is the type's own, where it has one; it finds fields that are not stored.
///
/// # Errors
/// [`ErrorKind::OutcomeNotRecordable`] when the stored form would not give the same value back.
///
/// # Examples
/// ```
/// use idem_runtime::outcome::{CodecId, decode_ok, encode_ok};
///
/// # fn main() -> Result<(), idem_runtime::Error> {
/// let stored = encode_ok(&("paid".to_owned(), 7_u32), CodecId::Json, 0, Some(PartialEq::eq))?;
/// assert_eq!(decode_ok::<(String, u32)>(&stored)?, ("paid".to_owned(), 7));
///
/// // JSON has no NaN.
/// assert!(encode_ok(&[1.0, f64::NAN], CodecId::Json, 0, None).is_err());
/// # Ok(())
/// # }
/// ```
pub fn encode_ok<T: Outcome>(
    value: &T,
    codec: CodecId,
    schema: u32,
    equality: Option<fn(&T, &T) -> bool>,
) -> Result<Bytes, Error> {
    encode_ok_and_read(value, codec, schema, equality).map(|(envelope, _)| envelope)
}

/// [`encode_ok`], and the value as every replay will give it. The two differ where a type without
/// `PartialEq` writes less than it holds.
pub(crate) fn encode_ok_and_read<T: Outcome>(
    value: &T,
    codec: CodecId,
    schema: u32,
    equality: Option<fn(&T, &T) -> bool>,
) -> Result<(Bytes, T), Error> {
    check::encode(value, Kind::Ok, codec, schema, equality)
}

/// Encodes a final error.
///
/// # Errors
/// As [`encode_ok`].
pub fn encode_err<E: Outcome>(error: &E, codec: CodecId, schema: u32) -> Result<Bytes, Error> {
    encode_err_and_read(error, codec, schema).map(|(envelope, _)| envelope)
}

/// [`encode_err`], and the error as every replay will give it.
pub(crate) fn encode_err_and_read<E: Outcome>(
    error: &E,
    codec: CodecId,
    schema: u32,
) -> Result<(Bytes, E), Error> {
    check::encode(error, Kind::Err, codec, schema, None)
}

/// The envelope of an outcome that was removed while its key stays known.
#[must_use]
pub fn tombstone() -> Bytes {
    envelope::header(Kind::Tombstone, 0, 0).to_vec().into()
}

/// The envelope of an outcome of `bytes` bytes that was too large to be kept.
#[must_use]
pub fn oversize(bytes: u64) -> Bytes {
    let mut out = envelope::header(Kind::Oversize, 0, 0).to_vec();
    out.extend(bytes.to_be_bytes());
    out.into()
}

/// The envelope of an outcome that could not be recorded, and why. It keeps the key closed: the body has
/// ended and must not run again.
#[must_use]
pub fn unrecordable(reason: &str) -> Bytes {
    let mut out = envelope::header(Kind::Unrecordable, 0, 0).to_vec();
    let end = reason.floor_char_boundary(MAX_REASON_BYTES);
    out.extend_from_slice(&reason.as_bytes()[..end]);
    out.into()
}

/// The longest reason that is kept.
const MAX_REASON_BYTES: usize = 500;

/// The envelope of a value that is JSON already.
pub(crate) fn json(payload: &str) -> Bytes {
    let mut out = envelope::header(Kind::Ok, CodecId::Json as u8, 0).to_vec();
    out.extend_from_slice(payload.as_bytes());
    out.into()
}

/// The size of what is encoded in the envelope.
pub(crate) fn payload_bytes(envelope: &[u8]) -> u64 {
    envelope.len().saturating_sub(envelope::HEADER_BYTES) as u64
}

/// Whether the envelope holds a final error.
#[must_use]
pub fn is_err(envelope: &[u8]) -> bool {
    matches!(recorded(envelope), Ok(Recorded::Err(_)))
}

/// Whether all that is left of an outcome is that there was one.
#[cfg(feature = "_sqlx")]
pub(crate) fn is_tombstone(envelope: &[u8]) -> bool {
    matches!(recorded(envelope), Ok(Recorded::Tombstone))
}

/// What the envelope holds.
///
/// # Errors
/// [`ErrorKind::OutcomeUndecodable`]: not an envelope, or one of another version.
pub fn recorded(envelope: &[u8]) -> Result<Recorded<'_>, Error> {
    Envelope::read(envelope)?.recorded()
}

/// Decodes an `Ok` value.
///
/// # Errors
/// [`ErrorKind::OutcomeUndecodable`]: the record is of an unknown form, holds no `Ok` value, or does
/// not read as `T`. [`ErrorKind::OutcomeGone`]: it says that there was an outcome.
pub fn decode_ok<T: DeserializeOwned>(envelope: &[u8]) -> Result<T, Error> {
    decode(envelope, Kind::Ok, None)
}

/// Decodes a final error.
///
/// # Errors
/// As [`decode_ok`].
pub fn decode_err<E: DeserializeOwned>(envelope: &[u8]) -> Result<E, Error> {
    decode(envelope, Kind::Err, None)
}

/// [`decode_ok`] for an operation whose outcome type has this schema version, which an error then
/// shows beside the recorded one.
///
/// # Errors
/// As [`decode_ok`]. Another schema version alone is no error.
pub fn decode_ok_for<T: DeserializeOwned>(envelope: &[u8], schema: u32) -> Result<T, Error> {
    decode(envelope, Kind::Ok, Some(schema))
}

/// [`decode_err`] for an operation whose outcome type has this schema version.
///
/// # Errors
/// As [`decode_ok_for`].
pub fn decode_err_for<E: DeserializeOwned>(envelope: &[u8], schema: u32) -> Result<E, Error> {
    decode(envelope, Kind::Err, Some(schema))
}

fn decode<T: DeserializeOwned>(
    envelope: &[u8],
    wanted: Kind,
    schema: Option<u32>,
) -> Result<T, Error> {
    let envelope = Envelope::read(envelope)?;
    if let Kind::Tombstone | Kind::Oversize | Kind::Unrecordable = envelope.kind {
        let mut detail = format!("the record holds {}", envelope.kind.describe());
        if let Recorded::Unrecordable { reason } = envelope.recorded()? {
            detail = format!("{detail}: {reason}");
        }
        return Err(Error::new(ErrorKind::OutcomeGone).detail(detail));
    }
    if envelope.kind != wanted {
        return Err(undecodable(format!(
            "the record holds {}, not {}",
            envelope.kind.describe(),
            wanted.describe()
        )));
    }
    let codec = envelope.codec()?;
    codec::read(codec, envelope.payload).map_err(|cause| {
        let here = schema.map_or(String::new(), |version| {
            format!(" of schema version {version}")
        });
        undecodable(format!(
            "`{}`{here} does not read the record of schema version {} in {}: {}",
            std::any::type_name::<T>(),
            envelope.schema,
            codec.name(),
            codec::public_text(&cause)
        ))
        .caused_by(cause)
    })
}

fn undecodable(detail: String) -> Error {
    Error::new(ErrorKind::OutcomeUndecodable).detail(detail)
}
