//! Drives the protocol against a store: in the caller's transaction, in a transaction of the
//! framework's own, with a lease.
//!
//! Generated code calls [`enter`], runs the body under the run's [`Driver`], and calls [`leave`];
//! with a transaction of the framework's own [`open`] and [`close`].

// Only generated code, released in lock step with this crate, matches on the enums here; the large
// variant is the one every first run takes, and a box would be an allocation on that path.
#![allow(clippy::exhaustive_enums, clippy::large_enum_variant)]

mod backoff;
mod backstop;
#[cfg(feature = "_sqlx")]
mod behind;
mod call_path;
#[cfg(feature = "_sqlx")]
mod circles;
#[cfg(feature = "_sqlx")]
mod coalesce;
mod contract;
mod driver;
#[cfg(feature = "_sqlx")]
mod finish;
mod guard;
mod keep;
mod leased;
#[cfg(feature = "_sqlx")]
mod owned;
mod permit;
mod renewal;
mod term;
#[cfg(all(feature = "_sqlx", feature = "tiered"))]
mod tiered;
#[cfg(feature = "_sqlx")]
mod transaction;
mod turns;

use std::future::Future;

use bytes::Bytes;

#[cfg(any(feature = "_sqlx", feature = "redis"))]
pub(crate) use backoff::Backoff;
pub use backstop::{Backstop, Gone, Said};
pub use call_path::fence;
pub(crate) use call_path::{Holds, holds, within};
pub use contract::{Contract, contract};
pub use driver::{Driven, Driver};
#[cfg(feature = "_sqlx")]
pub(crate) use finish::run_to_end;
#[cfg(feature = "redis")]
pub(crate) use guard::detach;
pub use keep::{Keep, Rebuilt, rebuilt};
pub use leased::share;
pub(crate) use leased::{ask, no_answer};
#[cfg(feature = "_sqlx")]
pub use owned::{Closed, OwnedRun, aside, close, close_or_again, open};
pub(crate) use renewal::{Renew, StoreLease, renew_until_lost};
pub(crate) use term::{Term, TermWatch};
pub(crate) use turns::Turns;

#[cfg(feature = "_sqlx")]
pub use permit::InTransaction;
pub use permit::{Admits, Guard, Permit, PermitSlot, Wanted, WithLease, leave_with_token};

use crate::clock::Moment;
use crate::error::{Effect, Error, ErrorKind};
use crate::observe::{Answered, Report};
use crate::operation::{Call, Oversize};
use crate::outcome;

/// What a store expression evaluates to: something a reservation can be made in.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot keep the records of an idempotent function",
    label = "not a store",
    note = "use the caller's transaction (`tx: &mut Transaction<'_, Postgres>`), a pool together with `tx = name`, or a leased store such as `MemoryStore`"
)]
pub trait Access {
    /// A running call.
    type Run: Run;
    /// What guards it.
    type Guard: Guard;

    #[doc(hidden)]
    fn guard(&mut self) -> &mut <Self::Guard as Guard>::Conn;

    #[doc(hidden)]
    fn reserve(
        &mut self,
        call: Call,
    ) -> impl Future<Output = Result<Step<Self::Run>, Error>> + Send;

    #[doc(hidden)]
    fn settle(
        &mut self,
        run: Self::Run,
        settlement: Settlement,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// A call whose reservation is made and whose body is to run.
pub trait Run {
    #[doc(hidden)]
    fn driver(&self) -> Driver;
    #[doc(hidden)]
    fn call(&self) -> &Call;
    /// The body has run to its end.
    #[doc(hidden)]
    fn body_ended(&mut self) {}
}

/// What came of a request to reserve.
#[derive(Debug)]
pub enum Step<R> {
    /// Run the body.
    Run(R),
    /// Answer from this.
    Replay(Replay),
}

/// A recorded outcome, with the call that asks for it.
#[derive(Debug)]
pub struct Replay {
    call: Call,
    outcome: Bytes,
    recorded_at: Option<Moment>,
}

/// How a run ends.
#[derive(Debug)]
pub enum Settlement {
    /// This outcome is recorded.
    Complete(Bytes),
    /// The call may be tried again.
    Release,
}

/// What [`enter`] found.
#[derive(Debug)]
pub enum Entered<T, E, R> {
    /// Run the body.
    Run(R),
    /// The call's answer.
    Answer(Result<T, E>),
}

/// Reserves, or answers.
///
/// # Cancel safety
/// In a transaction: roll it back. With a lease: the body has not run, and a reservation that may have
/// been made is given back in the background, or ends with its lease.
pub async fn enter<T, E, A: Access>(
    access: &mut A,
    call: Call,
    contract: &Contract<T, E>,
) -> Entered<T, E, A::Run> {
    let report = Report::claim();
    let call = call.reporting(report.clone());
    let id = call.id();
    let reserved = match call.is_expected() {
        Ok(()) => access.reserve(call).await,
        Err(error) => Err(error),
    };
    match reserved {
        Ok(Step::Run(run)) => {
            report.answered(id, Answered::FirstRun);
            Entered::Run(run)
        }
        Ok(Step::Replay(replay)) => {
            let recorded_at = replay.recorded_at;
            let answer = replay.answer(contract);
            match &answer {
                Ok(_) => report.answered(id, Answered::Replay { recorded_at }),
                Err(error) => report.refused(id, error.kind()),
            }
            Entered::Answer(
                answer.unwrap_or_else(|error| contract.refuse_early(error, id, &report)),
            )
        }
        Err(error) => {
            report.refused(id, error.kind());
            Entered::Answer(contract.refuse_early(error, id, &report))
        }
    }
}

/// Records or releases, after the body.
///
/// # Cancel safety
/// In a transaction: roll it back. With a lease: what was to be released is released in the
/// background; what was to be recorded may be or not, and is never released.
pub async fn leave<T, E, A: Access>(
    access: &mut A,
    mut run: A::Run,
    driven: Driven<Result<T, E>>,
    contract: &Contract<T, E>,
) -> Result<T, E> {
    let (result, known) = match driven {
        Driven::Finished(result) => (result, false),
        Driven::Known(result) => (result, true),
        Driven::LeaseLost => return contract.refuse(run.call().error(ErrorKind::LostOwnership)),
    };
    run.body_ended();
    if known {
        run.call().answered_by_backstop(result.is_ok());
    }
    let (settlement, replayed) = match contract.settlement(run.call(), &result, known) {
        Ok(Ending::Settle(settlement, replayed)) => (settlement, replayed),
        Ok(Ending::TooLarge(outcome)) => {
            return contract.refuse(access.too_large(run, outcome).await);
        }
        Err(error) => return contract.refuse(access.unrecordable(run, error)),
    };
    match access.settle(run, settlement).await {
        Ok(()) => replayed.unwrap_or(result),
        Err(error) => contract.refuse(error),
    }
}

impl Replay {
    fn answer<T, E>(self, contract: &Contract<T, E>) -> Result<Result<T, E>, Error> {
        contract
            .decode(self.call.schema(), &self.outcome)
            .map_err(|error| self.call.name(error))
    }
}

/// What a result comes to.
enum Ending<A> {
    /// With the answer as every replay will give it, if it is recorded whole.
    Settle(Settlement, Option<A>),
    /// This outcome is larger than the operation records.
    TooLarge(Bytes),
}

impl<T, E> Contract<T, E> {
    /// How a body's result, or what a backstop knew instead, is settled.
    ///
    /// # Errors
    /// The outcome cannot be recorded.
    fn settlement(
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

fn too_large(call: &Call, outcome: &[u8]) -> Error {
    let (bytes, most) = (outcome::payload_bytes(outcome), call.max_outcome());
    call.error(ErrorKind::OutcomeTooLarge)
        .detail(format!("it has {bytes} bytes, at most {most} are recorded"))
}

impl<A: Access> AccessExt for A {}

trait AccessExt: Access {
    /// The body succeeded and its outcome cannot be encoded. The reservation is neither completed
    /// nor released: a transaction cannot commit it, a lease holds off the next run until it ends.
    fn unrecordable(&self, run: Self::Run, error: Error) -> Error {
        let effect = if run.driver().is_leased() {
            Effect::Done
        } else {
            Effect::None
        };
        error.effect_is(effect)
    }

    /// The outcome is larger than the operation records. A transaction cannot commit its reservation.
    /// With a lease the effect is done: that much is recorded, or the call would run again once the
    /// lease is over.
    async fn too_large(&mut self, run: Self::Run, outcome: Bytes) -> Error {
        let error = too_large(run.call(), &outcome);
        if !run.driver().is_leased() {
            return error;
        }
        let marker = outcome::oversize(outcome::payload_bytes(&outcome));
        let error = error.effect_is(Effect::Done).carrying(outcome);
        match self.settle(run, Settlement::Complete(marker)).await {
            Ok(()) => error,
            Err(cause) => error.caused_by(cause),
        }
    }
}
