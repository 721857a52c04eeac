//! A transaction of the framework's own: begin, reserve, body, record, commit in one call.

mod close;
mod commit;
mod follow;
mod held;
mod tables;

use std::time::Duration;

use sqlx::{Pool, SqlStr, Transaction};

use super::backoff::Backoff;
use super::behind::{Behind, from_front};
use super::circles;
use super::coalesce::{self, Joined, Leader};
use super::finish::run_to_end;
use super::transaction::{Look, RETRY_AFTER, completed, look, polling, replay};
use super::{Contract, Driver, Entered, Replay, Run, Step, call_path};
use crate::error::{Effect, Error, ErrorKind};
use crate::key::RecordId;
use crate::observe::{Answered, Report};
use crate::operation::Call;
use crate::protocol::Owner;
use crate::store::sql::{Asked, Dialect, OwnPool, Records, Row, Running, classify};

pub use close::{Closed, close, close_or_again};
use follow::follow;
use held::Held;
use tables::Table;

/// How often a transaction that failed before its body ran is begun again.
const RETRIES_BEFORE_BODY: u32 = 20;

/// A call whose body runs in a transaction of the framework's own.
#[derive(Debug)]
pub struct OwnedRun<D: Dialect> {
    tx: Held<D>,
    pool: Pool<D>,
    records: Records,
    call: Call,
    running: Running,
    leader: Leader,
    behind: Behind,
    retries: u32,
}

impl<D: Dialect> OwnedRun<D> {
    /// The transaction, for the body.
    pub fn transaction(&mut self) -> &mut Transaction<'static, D> {
        self.tx.get()
    }
}

/// A run whose transaction is elsewhere.
pub(crate) struct Apart<D: Dialect> {
    pool: Pool<D>,
    records: Records,
    call: Call,
    running: Running,
    leader: Leader,
    behind: Behind,
    retries: u32,
}

impl<D: Dialect> OwnedRun<D> {
    /// The transaction by itself, for a body that must own it.
    pub(crate) fn apart(self) -> (Transaction<'static, D>, Apart<D>) {
        let apart = Apart {
            pool: self.pool,
            records: self.records,
            call: self.call,
            running: self.running,
            leader: self.leader,
            behind: self.behind,
            retries: self.retries,
        };
        (self.tx.take(), apart)
    }
}

impl<D: Dialect> Apart<D> {
    pub(crate) fn with(self, tx: Transaction<'static, D>) -> OwnedRun<D> {
        OwnedRun {
            tx: Held::new(tx, self.pool.clone()),
            pool: self.pool,
            records: self.records,
            call: self.call,
            running: self.running,
            leader: self.leader,
            behind: self.behind,
            retries: self.retries,
        }
    }
}

impl<D: Dialect> Run for OwnedRun<D> {
    fn driver(&self) -> Driver {
        Driver::on_path(self.leader.lane().clone())
    }

    fn call(&self) -> &Call {
        &self.call
    }
}

/// Begins and reserves, or answers.
///
/// # Cancel safety
/// The transaction, if begun, is rolled back; waiting calls go on without this one.
pub async fn open<T, E, P: OwnPool + ?Sized>(
    pool: &P,
    call: Call,
    contract: &Contract<T, E>,
) -> Entered<T, E, OwnedRun<P::Db>> {
    let report = Report::claim();
    let mut call = call.reporting(report.clone());
    if let Err(error) = call.is_expected() {
        let answer = refused(error, call.id(), contract, &report);
        return Entered::Answer(answer);
    }
    call.enter_namespace(pool.records().namespace_str());
    let id = call.id();
    let step = match pool.ask(id).await {
        Asked::Kept(kept) => from_front(call, kept).map(Step::Replay),
        asked => {
            let behind = Behind::new(pool.fill(), &asked);
            take_off(pool.pool(), pool.records(), behind, call).await
        }
    };
    Entered::Answer(match step {
        Ok(Step::Run(run)) => {
            report.answered(id, Answered::FirstRun);
            return Entered::Run(run);
        }
        Ok(Step::Replay(replay)) => replayed(replay, contract, &report),
        Err(error) => refused(error, id, contract, &report),
    })
}

/// The answer of a replay.
fn replayed<T, E>(replay: Replay, contract: &Contract<T, E>, report: &Report) -> Result<T, E> {
    let (id, recorded_at) = (replay.call.id(), replay.recorded_at);
    match replay.answer(contract) {
        Ok(answer) => {
            report.answered(id, Answered::Replay { recorded_at });
            answer
        }
        Err(error) => refused(error, id, contract, report),
    }
}

/// The answer of a call whose body does not run.
fn refused<T, E>(
    error: Error,
    id: RecordId,
    contract: &Contract<T, E>,
    report: &Report,
) -> Result<T, E> {
    report.refused(id, error.kind());
    contract.refuse_early(error, id, report)
}

/// A transaction for a backstop to look in, beside any call: it is rolled back.
///
/// # Errors
/// There is none.
///
/// # Cancel safety
/// The transaction, if begun, is rolled back.
pub async fn aside<T, E, P: OwnPool + ?Sized>(
    pool: &P,
    contract: &Contract<T, E>,
) -> Result<Transaction<'static, P::Db>, E> {
    let begun = begin(pool.pool(), pool.records().begin_statement()).await;
    // It is known that the call is done, and not what came of it.
    begun.or_else(|error| contract.refuse(error.effect_is(Effect::Done)))
}

async fn take_off<D: Dialect>(
    pool: &Pool<D>,
    records: &Records,
    behind: Behind,
    call: Call,
) -> Result<Step<OwnedRun<D>>, Error> {
    let table = Table::of(pool, records);
    if call_path::holds_lane(&table.lane(call.id())) {
        return Err(call.error(ErrorKind::Reentrant));
    }
    let mut polling = polling(&call);
    let mut runs = false;
    loop {
        let lane = table.lane(call.id());
        match coalesce::join(lane.clone(), call.fingerprint()) {
            Joined::First(leader) => {
                let step = depart(pool, records, behind, call, leader, &mut polling).await?;
                if let Step::Run(run) = &step {
                    run.call.duplicates().record(false);
                }
                return Ok(step);
            }
            Joined::Behind(follower) => {
                call.duplicates().record(true);
                let _waiting = circles::wait_for(&lane).ok_or_else(|| circle(&call))?;
                let patience = pool.options().get_acquire_timeout();
                let outcome = follow(&call, follower, &polling, patience, &mut runs).await?;
                if let Some(outcome) = outcome {
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

/// The body around this call, and the one that it would wait for, wait for each other.
fn circle(call: &Call) -> Error {
    call.error(ErrorKind::RetryTransaction).detail(
        "the call that runs this key waits, in its body, for the one whose body this call is made in: \
         make nested calls in one order everywhere",
    )
}

/// Goes first: reads without a transaction where duplicates are common, then begins and reserves.
async fn depart<D: Dialect>(
    pool: &Pool<D>,
    records: &Records,
    behind: Behind,
    mut call: Call,
    mut leader: Leader,
    polling: &mut Backoff,
) -> Result<Step<OwnedRun<D>>, Error> {
    let table = Table::of(pool, records);
    if table.is_one().is_some() && !behind.is_new() && call.duplicates().is_high() {
        match read(pool, records, &call).await {
            Ok(Some(row)) => return Ok(replayed_from(row, call, leader, &behind).await),
            Ok(None) => {}
            Err(error) => return Err(leader.fail(error)),
        }
    }
    let running = Running::register(Owner::fresh());
    let mut tries_left = RETRIES_BEFORE_BODY;
    loop {
        let tx = match table.begin(pool, records.begin_statement()).await {
            Ok(tx) => tx,
            // Another writer has the database for itself (SQLite): that too is to be waited for.
            Err(error) if error.kind() == ErrorKind::RetryTransaction => match polling.next() {
                Some(pause) => {
                    leader.runs_elsewhere();
                    tokio::time::sleep(pause).await;
                    continue;
                }
                None => return Err(call.name(error)),
            },
            Err(error) => return Err(leader.fail(call.name(error))),
        };
        if table.is_one() == Some(false) && leader.lane().alone.is_none() {
            // Some of those behind may mean another table: all stand in line anew.
            drop(leader);
            leader = coalesce::alone(table.lane(call.id()), call.fingerprint());
        }
        let (tx, back, looked) = look_to_end(tx, records, call, running.owner()).await;
        call = back;
        if !matches!(looked, Ok(Look::Ours)) {
            // Awaited, so that the connection is free and clean before anything else happens.
            let _ = tx.rollback().await;
        } else {
            leader.runs();
            let retries = call.retries();
            let (pool, records) = (pool.clone(), records.clone());
            return Ok(Step::Run(OwnedRun {
                tx: Held::new(tx, pool.clone()),
                pool,
                records,
                call,
                running,
                leader,
                behind,
                retries,
            }));
        }
        match looked {
            Ok(Look::Ours) | Ok(Look::InProgress) => {
                leader.runs_elsewhere();
                match polling.next() {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(call.error(ErrorKind::InProgress).after(RETRY_AFTER)),
                }
            }
            Ok(Look::Completed(row)) => {
                return Ok(replayed_from(row, call, leader, &behind).await);
            }
            // Nothing has run: beginning again needs nobody's leave.
            Err(error) if error.kind() == ErrorKind::RetryTransaction && tries_left > 0 => {
                tries_left -= 1;
                tokio::time::sleep(jitter(RETRIES_BEFORE_BODY - tries_left)).await;
            }
            Err(error) => return Err(leader.fail(error)),
        }
    }
}

/// Hands a record that was read to all who wait for it.
async fn replayed_from<R>(row: Row, call: Call, leader: Leader, behind: &Behind) -> Step<R> {
    call.duplicates().record(true);
    leader.land(row.outcome.clone().unwrap_or_default());
    behind.read(&call, &row).await;
    Step::Replay(replay(call, row))
}

/// Looks; to the end, where a statement that is dropped before its answer spoils the connection.
async fn look_to_end<D: Dialect>(
    mut tx: Transaction<'static, D>,
    records: &Records,
    call: Call,
    owner: Owner,
) -> (Transaction<'static, D>, Call, Result<Look, Error>) {
    if D::SURVIVES_A_DROP {
        let looked = look::<D>(&mut tx, records, &call, owner).await;
        return (tx, call, looked);
    }
    let records = records.clone();
    run_to_end(async move {
        let looked = look::<D>(&mut tx, &records, &call, owner).await;
        (tx, call, looked)
    })
    .await
}

/// The completed record, read on a connection of the pool.
async fn read<D: Dialect>(
    pool: &Pool<D>,
    records: &Records,
    call: &Call,
) -> Result<Option<Row>, Error> {
    let failed = |error| call.name(classify::<D>(error));
    let id = call.id();
    let found = if D::SURVIVES_A_DROP {
        let mut conn = pool.acquire().await.map_err(failed)?;
        D::peek(&mut conn, records.statements::<D>(), id).await
    } else {
        let (pool, records) = (pool.clone(), records.clone());
        run_to_end(async move {
            let mut conn = pool.acquire().await?;
            D::peek(&mut conn, records.statements::<D>(), id).await
        })
        .await
    };
    match found.map_err(failed)? {
        Some(row) if row.outcome.is_some() && !row.is_over => match completed(call, row)? {
            Look::Completed(row) => Ok(Some(row)),
            Look::Ours | Look::InProgress => Ok(None),
        },
        _ => Ok(None),
    }
}

/// Begins, and goes on beginning when the call is dropped: a `BEGIN` whose future is dropped on the
/// wire would leave the connection inside a transaction that nobody ends (decision 7).
async fn begin<D: Dialect>(
    pool: &Pool<D>,
    statement: Option<SqlStr>,
) -> Result<Transaction<'static, D>, Error> {
    let pool = pool.clone();
    run_to_end(async move { D::begin_with(&pool, statement).await })
        .await
        .map_err(classify::<D>)
}

fn jitter(attempt: u32) -> Duration {
    let longest = Duration::from_millis(1 << attempt.min(6));
    Backoff::new(Some(longest), longest, longest)
        .next()
        .unwrap_or_default()
}
