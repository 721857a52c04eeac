//! How a call whose body has ended is settled, and what its caller is told: decided without I/O.

use bytes::Bytes;

use super::{Contract, Driven, Run, Settlement};
use crate::error::{Effect, Error, ErrorKind};
use crate::operation::{Call, Oversize};
use crate::outcome;

/// What the caller is told once the call is settled.
pub(super) enum Verdict<T, E> {
    /// The function's own answer.
    Answer(Result<T, E>),
    /// An error of the framework.
    Refusal(Error),
}

/// What a result comes to.
pub(super) enum Ending<A> {
    /// With the answer as every replay will give it, if it is recorded whole.
    Settle(Settlement, Option<A>),
    /// This outcome is larger than the operation records.
    TooLarge(Bytes),
}

/// Decides how the call is settled, if at all, and what its caller is told then.
///
/// From here on the body has ended: where nothing else keeps it from running again, a marker stands for
/// an outcome that cannot be recorded.
pub(super) fn conclude<T, E, R: Run>(
    run: &mut R,
    driven: Driven<Result<T, E>>,
    contract: &Contract<T, E>,
) -> (Option<Settlement>, Verdict<T, E>) {
    let (result, known) = match driven {
        Driven::Finished(result) => (result, false),
        Driven::Known(result) => (result, true),
        Driven::LeaseLost(lost) => {
            let lost = run.call().error(lost.kind());
            return (None, Verdict::Refusal(lost));
        }
    };
    if known {
        run.call().answered_by_backstop(result.is_ok());
    }
    let (settlement, verdict) = match contract.settlement(run.call(), &result, known) {
        Ok(Ending::Settle(settlement, replayed)) => (
            Some(settlement),
            Verdict::Answer(replayed.unwrap_or(result)),
        ),
        Ok(Ending::TooLarge(outcome)) => {
            let marker = outcome::oversize(outcome::payload_bytes(&outcome));
            let error = too_large(run.call(), &outcome).carrying(outcome);
            marked(run, marker, error)
        }
        // The function's own error says more than that it could not be recorded.
        Err(error) if result.is_err() => {
            tracing::warn!(record = %run.call().id(), %error, "a final error could not be recorded");
            let settlement = match run.effect_unrecorded() {
                Some(_) => Settlement::Complete(outcome::unrecordable(error.detail_text())),
                None => Settlement::Release,
            };
            (Some(settlement), Verdict::Answer(result))
        }
        Err(error) => {
            let marker = outcome::unrecordable(error.detail_text());
            marked(run, marker, error)
        }
    };
    run.body_ended(settlement.as_ref());
    (settlement, verdict)
}

/// A value that cannot be recorded. A transaction that cannot be committed without it needs no marker.
fn marked<T, E, R: Run>(
    run: &R,
    marker: Bytes,
    error: Error,
) -> (Option<Settlement>, Verdict<T, E>) {
    match run.effect_unrecorded() {
        Some(effect) => (
            Some(Settlement::Complete(marker)),
            Verdict::Refusal(error.effect_is(effect)),
        ),
        // The value goes with the effect.
        None => {
            let error = error.effect_is(Effect::None).carrying_nothing();
            (None, Verdict::Refusal(error))
        }
    }
}

impl<T, E> Contract<T, E> {
    /// How a body's result, or what a backstop knew instead, is settled.
    ///
    /// # Errors
    /// The outcome cannot be recorded.
    pub(super) fn settlement(
        &self,
        call: &Call,
        result: &Result<T, E>,
        known: bool,
    ) -> Result<Ending<Result<T, E>>, Error> {
        let encoded = match result {
            Ok(value) => self
                .encode_ok(call, value)
                .map(|(outcome, read)| Some((outcome, Ok(read)))),
            // The body has not run: whatever kept the backstop from looking says nothing final.
            Err(_) if known => Ok(None),
            Err(error) => self
                .encode_final(call, error)
                .map(|found| found.map(|(outcome, read)| (outcome, Err(read)))),
        };
        match encoded {
            Ok(Some((outcome, read))) => Ok(fitting(call, outcome, read)),
            Ok(None) => Ok(Ending::Settle(Settlement::Release, None)),
            Err(error) => Err(call.name(error)),
        }
    }
}

/// Only a value may be missing from its record: an error without its text decides nothing.
fn fitting<T, E>(call: &Call, outcome: Bytes, read: Result<T, E>) -> Ending<Result<T, E>> {
    let bytes = outcome::payload_bytes(&outcome);
    if bytes <= call.max_outcome() {
        return Ending::Settle(Settlement::Complete(outcome), Some(read));
    }
    match call.oversize() {
        Oversize::Tombstone if read.is_ok() => {
            Ending::Settle(Settlement::Complete(outcome::oversize(bytes)), None)
        }
        Oversize::Tombstone | Oversize::Refuse => Ending::TooLarge(outcome),
    }
}

pub(super) fn too_large(call: &Call, outcome: &[u8]) -> Error {
    let (bytes, most) = (outcome::payload_bytes(outcome), call.max_outcome());
    call.error(ErrorKind::OutcomeTooLarge)
        .detail(format!("it has {bytes} bytes, at most {most} are recorded"))
}
