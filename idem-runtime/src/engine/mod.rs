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
pub(crate) mod coalesce;
mod conclusion;
mod contract;
mod driver;
#[cfg(feature = "_sqlx")]
mod finish;
mod guard;
mod keep;
mod leased;
#[cfg(feature = "_sqlx")]
mod owned;
mod pending;
mod permit;
mod recording;
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
pub use renewal::Lost;
pub(crate) use renewal::{AtDeadline, Renew, StoreLease, renew_until_lost};
pub(crate) use term::{Term, TermWatch};
pub(crate) use turns::Turns;

#[cfg(feature = "_sqlx")]
pub use permit::InTransaction;
pub use permit::{Admits, Guard, Permit, PermitSlot, Wanted, WithLease, leave_with_token};

#[cfg(feature = "_sqlx")]
use conclusion::{Ending, too_large};
use conclusion::{Verdict, conclude};

use crate::clock::Moment;
use crate::error::{Effect, Error};
use crate::observe::{Answered, Report};
use crate::operation::Call;

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
    /// What is said of the effect when a marker stands for an outcome that cannot be recorded; `None`:
    /// the reservation cannot be committed without its outcome, and needs no marker.
    #[doc(hidden)]
    fn effect_unrecorded(&self) -> Option<Effect> {
        None
    }
    /// The body has run to its end, and this is how the call is settled.
    #[doc(hidden)]
    fn body_ended(&mut self, _: Option<&Settlement>) {}
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
/// In a transaction: roll it back. With a lease: what was to be released is released, and what was to be
/// recorded is recorded, in the background.
pub async fn leave<T, E, A: Access>(
    access: &mut A,
    mut run: A::Run,
    driven: Driven<Result<T, E>>,
    contract: &Contract<T, E>,
) -> Result<T, E> {
    let (settlement, verdict) = conclude(&mut run, driven, contract);
    settle(access, run, settlement, verdict, contract).await
}

async fn settle<T, E, A: Access>(
    access: &mut A,
    run: A::Run,
    settlement: Option<Settlement>,
    verdict: Verdict<T, E>,
    contract: &Contract<T, E>,
) -> Result<T, E> {
    let settled = match settlement {
        Some(settlement) => access.settle(run, settlement).await,
        None => Ok(()),
    };
    match (settled, verdict) {
        (Ok(()), Verdict::Answer(answer)) => answer,
        (Ok(()), Verdict::Refusal(error)) | (Err(error), Verdict::Answer(_)) => {
            contract.refuse(error)
        }
        (Err(cause), Verdict::Refusal(error)) => contract.refuse(error.caused_by(cause)),
    }
}

impl Replay {
    fn answer<T, E>(self, contract: &Contract<T, E>) -> Result<Result<T, E>, Error> {
        contract
            .decode(self.call.schema(), &self.outcome)
            .map_err(|error| self.call.name(error))
    }
}
