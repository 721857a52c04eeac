//! What a function answers, and which of its errors are final.

use std::error::Error as StdError;
use std::fmt;
use std::sync::OnceLock;

use bytes::Bytes;

use super::backstop::{Gone, Seen};
use crate::error::{Error, ErrorKind};
use crate::key::RecordId;
use crate::observe::Report;
use crate::operation::Call;
use crate::outcome::{self, CodecId, Outcome, ServiceError};

/// Encodes a value, with the codec, the schema version and, if there is one, the type's equality; gives
/// the value as it reads back beside it.
type Encode<T> = fn(&T, CodecId, u32, Option<Equality<T>>) -> Result<(Bytes, T), Error>;

/// What a function answers, and which of its errors are final: everything about its types, as plain
/// function pointers, so that the future stays `Send` whatever they are.
///
/// [`contract`] asks for the bounds and nothing after it does: a type that does not hold them is
/// refused once, where the user wrote it.
pub struct Contract<T, E> {
    encode: Encode<T>,
    decode: fn(&[u8], u32) -> Result<T, Error>,
    refuse: fn(Error) -> E,
    equality: Option<Equality<T>>,
    sources: Option<fn(&E) -> &(dyn StdError + 'static)>,
    recording: Option<Recording<E>>,
    gone: OnceLock<Seen>,
}

type Equality<T> = fn(&T, &T) -> bool;

/// Encodes a final error, as [`Encode`] does a value.
type EncodeError<E> = fn(&E, CodecId, u32) -> Result<(Bytes, E), Error>;

struct Recording<E> {
    is_final: fn(&E) -> bool,
    encode: EncodeError<E>,
    decode: fn(&[u8], u32) -> Result<E, Error>,
}

/// A contract under which every error is released: the caller may retry.
#[must_use]
pub fn contract<T: Outcome, E: ServiceError>() -> Contract<T, E> {
    Contract {
        encode: outcome::encode_ok_and_read,
        decode: outcome::decode_ok_for,
        refuse: E::from,
        equality: None,
        sources: None,
        recording: None,
        gone: OnceLock::new(),
    }
}

impl<T, E> Contract<T, E> {
    /// How two values are compared, if they can be.
    #[must_use]
    pub const fn equality(mut self, equality: Option<Equality<T>>) -> Self {
        self.equality = equality;
        self
    }

    /// How the causes of an error are found, if they can be.
    #[must_use]
    pub const fn sources(mut self, sources: Option<fn(&E) -> &(dyn StdError + 'static)>) -> Self {
        self.sources = sources;
        self
    }

    /// Errors that `is_final` names are recorded and replayed.
    #[must_use]
    pub fn recording(mut self, is_final: fn(&E) -> bool) -> Self
    where
        E: Outcome,
    {
        self.recording = Some(Recording {
            is_final,
            encode: outcome::encode_err_and_read,
            decode: outcome::decode_err_for,
        });
        self
    }

    /// Every error is recorded and replayed.
    #[must_use]
    pub fn recording_all(self) -> Self
    where
        E: Outcome,
    {
        self.recording(|_| true)
    }

    /// The function's answer to an error of the framework.
    ///
    /// # Errors
    /// Always.
    pub fn refuse<U>(&self, error: Error) -> Result<U, E> {
        Err((self.refuse)(error))
    }

    /// The answer to a call that ends before its body; notes one whose outcome is gone.
    pub(super) fn refuse_early<U>(
        &self,
        error: Error,
        id: RecordId,
        report: &Report,
    ) -> Result<U, E> {
        if error.kind() == ErrorKind::OutcomeGone {
            let report = report.clone();
            // Once: a call ends once.
            let _ = self.gone.set(Seen { id, report });
        }
        self.refuse(error)
    }

    /// Tells the answer of a call whose outcome is gone, and whose backstop may know more, from
    /// others.
    ///
    /// # Errors
    /// It is gone.
    pub fn unless_gone<U>(&self, answer: Result<U, E>) -> Result<Result<U, E>, Gone<E>> {
        match (answer, self.gone.get().cloned()) {
            (Err(refusal), Some(seen)) => Err(Gone { refusal, seen }),
            (answer, _) => Ok(answer),
        }
    }

    /// The envelope of a value, and the value as every replay will give it.
    pub(super) fn encode_ok(&self, call: &Call, value: &T) -> Result<(Bytes, T), Error> {
        (self.encode)(value, call.codec(), call.schema(), self.equality)
    }

    pub(super) fn encode_as(&self, codec: CodecId, schema: u32, value: &T) -> Result<Bytes, Error> {
        (self.encode)(value, codec, schema, self.equality).map(|(envelope, _)| envelope)
    }

    /// The envelope of a final error, and the error as every replay will give it; `None` for one that may
    /// be retried.
    pub(super) fn encode_final(&self, call: &Call, error: &E) -> Result<Option<(Bytes, E)>, Error> {
        match &self.recording {
            Some(recording) if (recording.is_final)(error) => {
                (recording.encode)(error, call.codec(), call.schema()).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The envelope of an answer that is recorded by hand.
    ///
    /// # Errors
    /// It does not read back as the same value; or it is an error that is not recorded.
    pub(crate) fn encode(
        &self,
        codec: CodecId,
        schema: u32,
        answer: &Result<T, E>,
    ) -> Result<Bytes, Error> {
        match (answer, &self.recording) {
            (Ok(value), _) => self.encode_as(codec, schema, value),
            (Err(error), Some(recording)) if (recording.is_final)(error) => {
                (recording.encode)(error, codec, schema).map(|(envelope, _)| envelope)
            }
            (Err(_), _) => Err(Error::new(ErrorKind::OutcomeNotRecordable)
                .detail("the operation does not record this error (`record_err`)")),
        }
    }

    /// What a record holds, for an outcome type of this schema version.
    pub(crate) fn decode(&self, schema: u32, envelope: &[u8]) -> Result<Result<T, E>, Error> {
        if !outcome::is_err(envelope) {
            return (self.decode)(envelope, schema).map(Ok);
        }
        match &self.recording {
            Some(recording) => (recording.decode)(envelope, schema).map(Err),
            None => Err(Error::new(ErrorKind::OutcomeUndecodable)
                .detail("an error is recorded and this build records none (`record_err`)")
                .effect_is(crate::Effect::None)),
        }
    }

    /// The causes of an error, itself first.
    #[cfg(feature = "_sqlx")]
    pub(super) fn causes<'e>(
        &self,
        error: &'e E,
    ) -> impl Iterator<Item = &'e (dyn StdError + 'static)> + use<'e, T, E> {
        std::iter::successors(self.sources.map(|sources| sources(error)), |&error| {
            error.source()
        })
    }
}

impl<T, E> fmt::Debug for Contract<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contract")
            .field("records_errors", &self.recording.is_some())
            .finish_non_exhaustive()
    }
}
