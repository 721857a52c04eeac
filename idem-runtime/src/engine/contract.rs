use std::error::Error as StdError;
use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;

use crate::error::Error;
use crate::operation::Call;
use crate::outcome::{self, CodecId, Outcome, ServiceError};

/// What a function answers, and which of its errors are final: everything about its types, as plain
/// function pointers, so that the future stays `Send` whatever they are.
pub struct Contract<T, E> {
    equality: Option<fn(&T, &T) -> bool>,
    sources: Option<fn(&E) -> &(dyn StdError + 'static)>,
    recording: Option<Recording<E>>,
    types: PhantomData<fn() -> Result<T, E>>,
}

struct Recording<E> {
    is_final: fn(&E) -> bool,
    encode: fn(&E, CodecId, u32) -> Result<Bytes, Error>,
    decode: fn(&[u8], u32) -> Result<E, Error>,
}

impl<T: Outcome, E: ServiceError> Contract<T, E> {
    /// Every error is released: the caller may retry.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            equality: None,
            sources: None,
            recording: None,
            types: PhantomData,
        }
    }
}

impl<T: Outcome, E: ServiceError> Default for Contract<T, E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, E> Contract<T, E> {
    /// How two values are compared, if they can be.
    #[must_use]
    pub const fn equality(mut self, equality: Option<fn(&T, &T) -> bool>) -> Self {
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
            encode: outcome::encode_err,
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

    pub(super) fn encode_ok(&self, call: &Call, value: &T) -> Result<Bytes, Error>
    where
        T: Outcome,
    {
        outcome::encode_ok(value, call.codec(), call.schema(), self.equality)
    }

    /// The envelope of a final error; `None` for one that may be retried.
    pub(super) fn encode_final(&self, call: &Call, error: &E) -> Result<Option<Bytes>, Error> {
        match &self.recording {
            Some(recording) if (recording.is_final)(error) => {
                (recording.encode)(error, call.codec(), call.schema()).map(Some)
            }
            _ => Ok(None),
        }
    }

    pub(super) fn decode(&self, call: &Call, envelope: &[u8]) -> Result<Result<T, E>, Error>
    where
        T: Outcome,
    {
        if !outcome::is_err(envelope) {
            return outcome::decode_ok_for(envelope, call.schema()).map(Ok);
        }
        match &self.recording {
            Some(recording) => (recording.decode)(envelope, call.schema()).map(Err),
            None => Err(Error::new(crate::ErrorKind::OutcomeUndecodable)
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
