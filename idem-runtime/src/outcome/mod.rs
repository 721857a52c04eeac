//! The outcome: what the first run returned, as it is stored and replayed.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind};

/// The encoding of an outcome's payload. The number is stored with the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum CodecId {
    /// JSON.
    Json = 1,
    /// MessagePack with named fields.
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
#[derive(Debug)]
#[non_exhaustive]
pub enum Recorded<'a> {
    /// `Ok` of the function.
    Ok(&'a [u8]),
    /// A final error of the function.
    Err(&'a [u8]),
}

/// Encodes an `Ok` value.
///
/// # Errors
/// [`ErrorKind::OutcomeNotRecordable`] when the stored form would not give the same value back.
pub fn encode_ok<T: Outcome>(
    value: &T,
    codec: CodecId,
    schema: u32,
    _equality: Option<fn(&T, &T) -> bool>,
) -> Result<Bytes, Error> {
    encode(value, 1, codec, schema)
}

/// Encodes a final error.
///
/// # Errors
/// As [`encode_ok`].
pub fn encode_err<E: Outcome>(error: &E, codec: CodecId, schema: u32) -> Result<Bytes, Error> {
    encode(error, 2, codec, schema)
}

fn encode<T: Outcome>(value: &T, kind: u8, codec: CodecId, schema: u32) -> Result<Bytes, Error> {
    let mut out = vec![1, kind, codec as u8];
    out.extend(schema.to_be_bytes());
    serde_json::to_writer(&mut out, value)
        .map_err(|e| Error::new(ErrorKind::OutcomeNotRecordable).caused_by(e))?;
    Ok(out.into())
}

/// Whether the envelope holds a final error.
#[must_use]
pub fn is_err(envelope: &[u8]) -> bool {
    envelope.get(1) == Some(&2)
}

/// Decodes an `Ok` value.
///
/// # Errors
/// [`ErrorKind::OutcomeUndecodable`].
pub fn decode_ok<T: DeserializeOwned>(envelope: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(envelope.get(7..).unwrap_or_default())
        .map_err(|e| Error::new(ErrorKind::OutcomeUndecodable).caused_by(e))
}

/// Decodes a final error.
///
/// # Errors
/// [`ErrorKind::OutcomeUndecodable`].
pub fn decode_err<E: DeserializeOwned>(envelope: &[u8]) -> Result<E, Error> {
    decode_ok(envelope)
}
