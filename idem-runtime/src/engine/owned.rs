//! A transaction of the framework's own: begin, reserve, body, record, commit in one call.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sqlx::error::DatabaseError;
use sqlx::{Pool, Transaction};

use super::backoff::Backoff;
use super::coalesce::{self, Follower, Joined, Leader};
use super::transaction::{self, Look, RETRY_AFTER, completed, look, polling, replay};
use super::{Contract, Driven, Driver, Entered, Replay, Run, Settlement, Step, call_path};
use crate::error::{Effect, Error, ErrorKind};
use crate::observe::{Answered, Report};
use crate::operation::{Call, InProgress};
use crate::outcome::{Outcome, ServiceError};
use crate::protocol::Owner;
use crate::store::sql::{Dialect, Inserted, NewRow, OwnPool, Records, Running, classify};

/// How often a transaction that failed before its body ran is begun again.
const RETRIES_BEFORE_BODY: u32 = 20;

/// A call whose body runs in a transaction of the framework's own.
#[derive(Debug)]
pub struct OwnedRun<D: Dialect> {
    tx: Transaction<'static, D>,
    pool: Pool<D>,
    records: Records,
    call: Call,
    running: Running,
    leader: Leader,
    retries: u32,
}

impl<D: Dialect> OwnedRun<D> {
    /// The transaction, for the body.
    pub fn transaction(&mut self) -> &mut Transaction<'static, D> {
        &mut self.tx
    }
}

impl<D: Dialect> Run for OwnedRun<D> {
    fn driver(&self) -> Driver {
        Driver::on_path(self.call.id())
    }

    fn call(&self) -> &Call {
        &self.call
    }
}

/// What [`close_or_again`] did.
#[derive(Debug)]
pub enum Closed<T, E, D: Dialect> {
    /// The call's answer.
    Answer(Result<T, E>),
    /// The database gave the transaction up; the body is to run again in this one.
    Again(OwnedRun<D>),
}

/// Begins and reserves, or answers.
///
/// # Cancel safety
/// The transaction, if begun, is rolled back; waiting calls go on without this one.
pub async fn open<T: Outcome, E: ServiceError, P: OwnPool + ?Sized>(
    pool: &P,
    call: Call,
    contract: &Contract<T, E>,
) -> Entered<T, E, OwnedRun<P::Db>> {
    let report = Report::claim();
    let mut call = call;
    call.enter_namespace(pool.records().namespace_str());
    let id = call.id();
    let (answered, entered) = match take_off(pool.pool(), pool.records(), call).await {
        Ok(Step::Run(run)) => (Answered::FirstRun, Entered::Run(run)),
        Ok(Step::Replay(replay)) => {
            let recorded_at = replay.recorded_at;
            match replay.answer(contract) {
                Ok(answer) => (Answered::Replay { recorded_at }, Entered::Answer(answer)),
                Err(error) => (Answered::Refused, Entered::Answer(Err(error.into()))),
            }
        }
        Err(error) => (Answered::Refused, Entered::Answer(Err(error.into()))),
    };
    report.answered(id, answered);
    entered
}

async fn take_off<D: Dialect>(
    pool: &Pool<D>,
    records: &Records,
    call: Call,
) -> Result<Step<OwnedRun<D>>, Error> {
    if call_path::holds(call.id()) {
        return Err(call.error(ErrorKind::Reentrant));
    }
    // All clones of a pool share their options; another pool has others.
    let lane = (Arc::as_ptr(&pool.connect_options()) as usize, call.id());
    let mut polling = polling(&call);
    loop {
        match coalesce::join(lane, call.fingerprint()) {
            Joined::First(leader) => {
                let step = depart(pool, records, call, leader, &mut polling).await?;
                if let Step::Run(run) = &step {
                    run.call.duplicates().record(false);
                }
                return Ok(step);
            }
            Joined::Behind(follower) => {
                call.duplicates().record(true);
                if let Some(outcome) = follow(&call, follower, &polling).await? {
                    return Ok(Step::Replay(Replay {
                        call,
                        outcome,
                        recorded_at: None,
                    }));
                }
            }
        }
    }
}

/// Waits for the call that went first, without a connection.
async fn follow(
    call: &Call,
    follower: Follower,
    polling: &Backoff,
) -> Result<Option<Bytes>, Error> {
    if !follower.fingerprint.matches(call.fingerprint()) {
        return Err(call.error(ErrorKind::FingerprintMismatch));
    }
    let in_progress = || call.error(ErrorKind::InProgress).after(RETRY_AFTER);
    if call.in_progress() == InProgress::Reject {
        return Err(in_progress());
    }
    tokio::time::timeout(polling.left(), follower.landed())
        .await
        .map_err(|_| in_progress())
}

/// Goes first: reads without a transaction where duplicates are common, then begins and reserves.
async fn depart<D: Dialect>(
    pool: &Pool<D>,
    records: &Records,
    call: Call,
    leader: Leader,
    polling: &mut Backoff,
) -> Result<Step<OwnedRun<D>>, Error> {
    if call.duplicates().is_high()
        && let Some(row) = read(pool, records, &call).await?
    {
        call.duplicates().record(true);
        leader.land(row.outcome.clone().unwrap_or_default());
        return Ok(Step::Replay(replay(call, row)));
    }
    let running = Running::register(Owner::fresh());
    let mut tries_left = RETRIES_BEFORE_BODY;
    loop {
        let mut tx = begin(pool).await.map_err(|error| call.name(error))?;
        let looked = look::<D>(&mut tx, records, &call, running.owner()).await;
        if !matches!(looked, Ok(Look::Ours)) {
            // Awaited, so that the connection is free and clean before anything else happens.
            let _ = tx.rollback().await;
        } else {
            let retries = call.retries();
            let (pool, records) = (pool.clone(), records.clone());
            return Ok(Step::Run(OwnedRun {
                tx,
                pool,
                records,
                call,
                running,
                leader,
                retries,
            }));
        }
        match looked {
            Ok(Look::Ours) | Ok(Look::InProgress) => match polling.next() {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(call.error(ErrorKind::InProgress).after(RETRY_AFTER)),
            },
            Ok(Look::Completed(row)) => {
                call.duplicates().record(true);
                leader.land(row.outcome.clone().unwrap_or_default());
                return Ok(Step::Replay(replay(call, row)));
            }
            // Nothing has run: beginning again needs nobody's leave.
            Err(error) if error.kind() == ErrorKind::RetryTransaction && tries_left > 0 => {
                tries_left -= 1;
                tokio::time::sleep(jitter(RETRIES_BEFORE_BODY - tries_left)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The completed record, read on a connection of the pool.
async fn read<D: Dialect>(
    pool: &Pool<D>,
    records: &Records,
    call: &Call,
) -> Result<Option<crate::store::sql::Row>, Error> {
    let failed = |error| call.name(classify::<D>(error));
    let mut conn = pool.acquire().await.map_err(failed)?;
    let peek = &records.statements::<D>().peek;
    let found = D::read(&mut conn, peek, call.id()).await.map_err(failed)?;
    drop(conn);
    match found {
        Some(row) if row.outcome.is_some() && !row.is_over => match completed(call, row)? {
            Look::Completed(row) => Ok(Some(row)),
            Look::Ours | Look::InProgress => Ok(None),
        },
        _ => Ok(None),
    }
}

/// Begins in a task of its own: a `BEGIN` whose future is dropped on the wire would leave the
/// connection inside a transaction that nobody ends (sqlx 0.9 queues no rollback then).
async fn begin<D: Dialect>(pool: &Pool<D>) -> Result<Transaction<'static, D>, Error> {
    let pool = pool.clone();
    match tokio::spawn(async move { D::begin(&pool).await }).await {
        Ok(begun) => begun.map_err(classify::<D>),
        Err(ended) => Err(Error::new(ErrorKind::StoreUnavailable).caused_by(ended)),
    }
}

fn jitter(attempt: u32) -> Duration {
    let longest = Duration::from_millis(1 << attempt.min(6));
    Backoff::new(Some(longest), longest, longest)
        .next()
        .unwrap_or_default()
}

/// Records and commits, or rolls back.
///
/// # Cancel safety
/// The transaction is rolled back, unless the commit was already sent: then the outcome is unknown
/// to this caller, and the next call with the key finds it.
pub async fn close<T: Outcome, E: ServiceError, D: Dialect>(
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
pub async fn close_or_again<T: Outcome, E: ServiceError, D: Dialect>(
    run: OwnedRun<D>,
    driven: Driven<Result<T, E>>,
    contract: &Contract<T, E>,
) -> Closed<T, E, D> {
    let retries = run.retries;
    match finish(run, driven, contract).await {
        Finished::Answer(answer) => Closed::Answer(answer),
        Finished::GivenUp { error, .. } if retries == 0 => Closed::Answer(error),
        Finished::GivenUp {
            pool,
            records,
            call,
            leader,
            ..
        } => {
            tokio::time::sleep(jitter(call.retries() - retries + 1)).await;
            let mut polling = polling(&call);
            match depart(&pool, &records, call, leader, &mut polling).await {
                Ok(Step::Run(mut run)) => {
                    run.retries = retries - 1;
                    Closed::Again(run)
                }
                Ok(Step::Replay(replay)) => Closed::Answer(
                    replay
                        .answer(contract)
                        .unwrap_or_else(|error| Err(error.into())),
                ),
                Err(error) => Closed::Answer(Err(error.into())),
            }
        }
    }
}

enum Finished<T, E, D: Dialect> {
    Answer(Result<T, E>),
    /// The database gave the transaction up; everything of it is gone.
    GivenUp {
        error: Result<T, E>,
        pool: Pool<D>,
        records: Records,
        call: Call,
        leader: Leader,
    },
}

async fn finish<T: Outcome, E: ServiceError, D: Dialect>(
    run: OwnedRun<D>,
    driven: Driven<Result<T, E>>,
    contract: &Contract<T, E>,
) -> Finished<T, E, D> {
    let result = match driven {
        Driven::Finished(result) => result,
        Driven::LeaseLost => Err(run.call.error(ErrorKind::LostOwnership).into()),
    };
    let settlement = match contract.settlement(&run.call, &result) {
        Ok(settlement) => settlement,
        Err(error) => {
            let _ = run.tx.rollback().await;
            return Finished::Answer(Err(error.effect_is(Effect::None).into()));
        }
    };
    let OwnedRun {
        mut tx,
        pool,
        records,
        call,
        running,
        leader,
        ..
    } = run;
    let outcome = match (&result, settlement) {
        (Ok(_), Settlement::Complete(outcome)) => outcome,
        (Err(error), settlement) => {
            let given_up = was_given_up::<T, E, D>(contract, error);
            let _ = tx.rollback().await;
            if given_up {
                return Finished::GivenUp {
                    error: result,
                    pool,
                    records,
                    call,
                    leader,
                };
            }
            if let Settlement::Complete(outcome) = settlement {
                record_alone(&pool, &records, &call, outcome, leader).await;
            }
            return Finished::Answer(result);
        }
        (Ok(_), Settlement::Release) => {
            let _ = tx.rollback().await;
            return Finished::Answer(Err(call.error(ErrorKind::OutcomeNotRecordable).into()));
        }
    };
    let committed = async {
        transaction::complete::<D>(&mut tx, &records, &call, running.owner(), &outcome).await?;
        commit(tx, &pool, &records, &call, running.owner()).await
    };
    match committed.await {
        Ok(()) => {
            leader.land(outcome);
            Finished::Answer(result)
        }
        Err(error) if error.kind() == ErrorKind::RetryTransaction => Finished::GivenUp {
            error: Err(error.into()),
            pool,
            records,
            call,
            leader,
        },
        Err(error) => Finished::Answer(Err(error.into())),
    }
}

/// Whether the body's error comes from the database giving the transaction up.
fn was_given_up<T, E, D: Dialect>(contract: &Contract<T, E>, error: &E) -> bool {
    let by_code = |error: &dyn DatabaseError| {
        D::code(error).is_some_and(|code| D::kind_of_code(&code) == ErrorKind::RetryTransaction)
    };
    contract.causes(error).any(|cause| {
        if let Some(error) = cause.downcast_ref::<Error>() {
            return error.kind() == ErrorKind::RetryTransaction;
        }
        // A transparent wrapper shows the cause of sqlx's error and not that error itself.
        if let Some(error) = cause.downcast_ref::<Box<dyn DatabaseError>>() {
            return by_code(&**error);
        }
        match cause.downcast_ref::<sqlx::Error>() {
            Some(sqlx::Error::Database(error)) => by_code(&**error),
            _ => false,
        }
    })
}

async fn commit<D: Dialect>(
    tx: Transaction<'static, D>,
    pool: &Pool<D>,
    records: &Records,
    call: &Call,
    owner: Owner,
) -> Result<(), Error> {
    match tx.commit().await {
        Ok(()) => Ok(()),
        Err(error @ sqlx::Error::Database(_)) => {
            // The server has answered: nothing is committed.
            Err(call.name(classify::<D>(error)).effect_is(Effect::None))
        }
        Err(lost) => match resolve(pool, records, call, owner).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(call
                .error(ErrorKind::StoreUnavailable)
                .effect_is(Effect::None)
                .detail("the connection was lost at the commit, and nothing was committed")
                .caused_by(lost)),
            Err(_) => Err(call.error(ErrorKind::CommitUnknown).caused_by(lost)),
        },
    }
}

/// Finds out whether a commit whose answer was lost has held, by our own owner token. The reserving
/// insert tells apart "still at it", "held" and "gone".
async fn resolve<D: Dialect>(
    pool: &Pool<D>,
    records: &Records,
    call: &Call,
    owner: Owner,
) -> Result<bool, Error> {
    let mut backoff = Backoff::new(
        Some(Duration::from_secs(10)),
        Duration::from_millis(10),
        Duration::from_millis(500),
    );
    loop {
        let asked = ask(pool, records, call, owner).await;
        match asked {
            Ok(Some(held)) => return Ok(held),
            Ok(None) | Err(_) => match backoff.next() {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(call.error(ErrorKind::CommitUnknown)),
            },
        }
    }
}

/// One question: `None` while the lost transaction is still open in the database.
async fn ask<D: Dialect>(
    pool: &Pool<D>,
    records: &Records,
    call: &Call,
    owner: Owner,
) -> Result<Option<bool>, Error> {
    let failed = |error| call.name(classify::<D>(error));
    let statements = records.statements::<D>();
    let mut tx = begin(pool).await?;
    let probe = NewRow::of(call, Owner::fresh());
    let inserted = D::insert(&mut tx, statements, probe)
        .await
        .map_err(failed)?;
    let held = match inserted {
        Inserted::Ours => Some(false),
        Inserted::Held => None,
        Inserted::Taken => D::read(&mut tx, &statements.read, call.id())
            .await
            .map_err(failed)?
            .map(|row| row.owner == owner && row.outcome.is_some()),
    };
    tx.rollback().await.map_err(failed)?;
    Ok(held)
}

/// Records a final error in a transaction of its own, after the body's was rolled back. Best effort:
/// the error had no effect, so a call that runs again instead repeats nothing.
async fn record_alone<D: Dialect>(
    pool: &Pool<D>,
    records: &Records,
    call: &Call,
    outcome: Bytes,
    leader: Leader,
) {
    let record = async {
        let running = Running::register(Owner::fresh());
        let mut tx = begin(pool).await?;
        if !matches!(
            look::<D>(&mut tx, records, call, running.owner()).await?,
            Look::Ours
        ) {
            return tx.rollback().await.map(|()| false).map_err(classify::<D>);
        }
        transaction::complete::<D>(&mut tx, records, call, running.owner(), &outcome).await?;
        tx.commit().await.map(|()| true).map_err(classify::<D>)
    };
    match record.await {
        Ok(true) => leader.land(outcome),
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(record = %call.id(), error = %error, "a final error could not be recorded");
        }
    }
}
