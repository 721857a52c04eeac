//! The end of a run: recorded and committed, rolled back, or begun again.

use std::future::Future;
use std::time::Instant;

use bytes::Bytes;
use sqlx::error::DatabaseError;
use sqlx::{Pool, Transaction};

use super::commit::{commit, record_alone};
use super::{OwnedRun, depart, jitter, refused, replayed};
use crate::engine::behind::Behind;
use crate::engine::coalesce::Leader;
use crate::engine::finish::run_to_end;
use crate::engine::transaction::{self, polling};
use crate::engine::{Contract, Driven, Ending, Settlement, Step, too_large};
use crate::error::{Effect, Error, ErrorKind};
use crate::observe::Answered;
use crate::operation::Call;
use crate::store::sql::{Dialect, Records, Running, was_given_up as database_gave_up};

/// What [`close_or_again`] did.
#[derive(Debug)]
pub enum Closed<T, E, D: Dialect> {
    /// The call's answer.
    Answer(Result<T, E>),
    /// What another call has recorded meanwhile: the transaction was given up.
    Replay(Result<T, E>),
    /// The database gave the transaction up; the body is to run again in this one.
    Again(OwnedRun<D>),
}

/// Records and commits, or rolls back.
///
/// # Cancel safety
/// The transaction is rolled back, unless the commit was already sent: then the outcome is unknown
/// to this caller, and the next call with the key finds it. With MySQL and MariaDB a call that is
/// dropped once it records goes on to its commit in the background.
pub async fn close<T, E, D: Dialect>(
    run: OwnedRun<D>,
    driven: Driven<Result<T, E>>,
    contract: &Contract<T, E>,
) -> Result<T, E> {
    match finish(run, driven, contract).await {
        Finished::Answer(answer) => answer,
        Finished::GivenUp { error, .. } => error,
    }
}

/// As [`close`]; where the database gave the transaction up and the operation has retries left,
/// begins again instead.
///
/// # Cancel safety
/// As [`close`].
pub async fn close_or_again<T, E, D: Dialect>(
    run: OwnedRun<D>,
    driven: Driven<Result<T, E>>,
    contract: &Contract<T, E>,
) -> Closed<T, E, D> {
    let retries = run.retries;
    let begun = match finish(run, driven, contract).await {
        Finished::Answer(answer) => return Closed::Answer(answer),
        Finished::GivenUp { error, .. } if retries == 0 => return Closed::Answer(error),
        Finished::GivenUp { begun, .. } => begun,
    };
    let Begun {
        pool,
        records,
        behind,
        call,
        leader,
    } = begun;
    let (id, report) = (call.id(), call.report().clone());
    tokio::time::sleep(jitter(call.retries() - retries + 1)).await;
    let mut polling = polling(&call);
    let step = depart(&pool, &records, behind, call, leader, &mut polling).await;
    Closed::Replay(match step {
        Ok(Step::Run(mut run)) => {
            run.retries = retries - 1;
            report.answered(id, Answered::FirstRun);
            return Closed::Again(run);
        }
        Ok(Step::Replay(replay)) => replayed(replay, contract, &report),
        Err(error) => refused(error, id, contract, &report),
    })
}

/// What it takes to begin again.
pub(super) struct Begun<D: Dialect> {
    pub(super) pool: Pool<D>,
    pub(super) records: Records,
    pub(super) behind: Behind,
    pub(super) call: Call,
    pub(super) leader: Leader,
}

impl<D: Dialect> Begun<D> {
    /// The answer of a call whose body has run and that ends in an error of the framework.
    fn refuse<T, E>(&self, contract: &Contract<T, E>, error: Error) -> Result<T, E> {
        self.call.report().refused(self.call.id(), error.kind());
        contract.refuse(error)
    }
}

enum Finished<T, E, D: Dialect> {
    Answer(Result<T, E>),
    /// The database gave the transaction up; everything of it is gone.
    GivenUp {
        error: Result<T, E>,
        begun: Begun<D>,
    },
}

async fn finish<T, E, D: Dialect>(
    run: OwnedRun<D>,
    driven: Driven<Result<T, E>>,
    contract: &Contract<T, E>,
) -> Finished<T, E, D> {
    let OwnedRun {
        tx,
        pool,
        records,
        call,
        running,
        leader,
        behind,
        ..
    } = run;
    let tx = tx.take();
    let (result, known) = match driven {
        Driven::Finished(result) => (result, false),
        Driven::Known(result) => (result, true),
        Driven::LeaseLost(lost) => (contract.refuse(call.error(lost.kind())), false),
    };
    let begun = Begun {
        pool,
        records,
        behind,
        call,
        leader,
    };
    // Asked first: a lost transaction is no answer of the function, whatever it calls final.
    if let Err(error) = &result
        && was_given_up::<T, E, D>(contract, error)
    {
        let _ = tx.rollback().await;
        return Finished::GivenUp {
            error: result,
            begun,
        };
    }
    if known {
        begun.call.answered_by_backstop(result.is_ok());
    }
    let (settlement, replayed) = match contract.settlement(&begun.call, &result, known) {
        Ok(Ending::Settle(settlement, replayed)) => (settlement, replayed),
        Ok(Ending::TooLarge(outcome)) => {
            let _ = tx.rollback().await;
            let error = too_large(&begun.call, &outcome);
            return Finished::Answer(begun.refuse(contract, error));
        }
        Err(error) => {
            let _ = tx.rollback().await;
            return Finished::Answer(begun.refuse(contract, error.effect_is(Effect::None)));
        }
    };
    let outcome = match (&result, settlement) {
        (Ok(_), Settlement::Complete(outcome)) => outcome,
        (Err(_), settlement) => {
            let _ = tx.rollback().await;
            if let Settlement::Complete(outcome) = settlement {
                to_its_end::<D, _>(record_alone(begun, outcome)).await;
            }
            return Finished::Answer(replayed.unwrap_or(result));
        }
        (Ok(_), Settlement::Release) => {
            let _ = tx.rollback().await;
            let error = begun.call.error(ErrorKind::OutcomeNotRecordable);
            return Finished::Answer(begun.refuse(contract, error));
        }
    };
    let recorded = record(tx, begun, running, outcome);
    match to_its_end::<D, _>(recorded).await {
        Ok(()) => Finished::Answer(replayed.unwrap_or(result)),
        Err((error, begun)) if error.kind() == ErrorKind::RetryTransaction => Finished::GivenUp {
            error: begun.refuse(contract, error),
            begun,
        },
        Err((error, begun)) => Finished::Answer(begun.refuse(contract, error)),
    }
}

/// Records and commits; then wakes those who wait, and fills the front.
async fn record<D: Dialect>(
    mut tx: Transaction<'static, D>,
    begun: Begun<D>,
    running: Running,
    outcome: Bytes,
) -> Result<(), (Error, Begun<D>)> {
    let Begun {
        pool,
        records,
        call,
        ..
    } = &begun;
    let (owner, asked_at) = (running.owner(), Instant::now());
    let completed = transaction::complete::<D>(&mut tx, records, call, owner, &outcome).await;
    let done = match completed {
        Ok(()) => commit(tx, pool, records, call, owner).await,
        Err(error) => {
            let _ = tx.rollback().await;
            Err(error)
        }
    };
    if let Err(error) = done {
        return Err((error, begun));
    }
    begun.leader.land(outcome.clone());
    let copied = begun.behind.committed(&begun.call, &outcome, asked_at);
    copied.await;
    Ok(())
}

/// Runs statements of the framework's to their end even when the caller drops them, where one that is
/// dropped before its answer spoils the connection.
async fn to_its_end<D: Dialect, F>(statements: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    if D::SURVIVES_A_DROP {
        statements.await
    } else {
        run_to_end(statements).await
    }
}

/// Whether the body's error comes from the database giving the transaction up.
fn was_given_up<T, E, D: Dialect>(contract: &Contract<T, E>, error: &E) -> bool {
    contract.causes(error).any(|cause| {
        if let Some(error) = cause.downcast_ref::<Error>() {
            return error.kind() == ErrorKind::RetryTransaction;
        }
        // A transparent wrapper shows the cause of sqlx's error and not that error itself.
        if let Some(error) = cause.downcast_ref::<Box<dyn DatabaseError>>() {
            return database_gave_up::<D>(&**error);
        }
        match cause.downcast_ref::<sqlx::Error>() {
            Some(sqlx::Error::Database(error)) => database_gave_up::<D>(&**error),
            _ => false,
        }
    })
}
