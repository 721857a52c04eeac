//! The caller's transaction. Nothing here commits, rolls back or sets a savepoint: the transaction
//! is the guard, and stands or falls by the caller's own decision.

use std::time::Duration;

use sqlx::Transaction;
use tokio::time::Instant;

use super::backoff::Backoff;
use super::{Access, Driver, InTransaction, Replay, Run, Settlement, Step, call_path};
use crate::error::{Effect, Error, ErrorKind};
use crate::operation::{Call, InProgress};
use crate::outcome;
use crate::protocol::Owner;
use crate::store::sql::{
    Dialect, Inserted, NewRow, OnTx, Records, Row, Running, Times, classify, in_transaction,
    table_is_gone,
};

/// A call whose row stands unfinished in a transaction.
#[derive(Debug)]
pub struct TxRun {
    pub(super) call: Call,
    running: Running,
    /// Whether the database would commit it without an outcome.
    commits_half_done: bool,
}

#[cfg(feature = "tiered")]
impl TxRun {
    pub(super) fn owner(&self) -> Owner {
        self.running.owner()
    }
}

impl Run for TxRun {
    fn effect_unrecorded(&self) -> Option<Effect> {
        // It stands or falls with the caller's transaction.
        self.commits_half_done.then_some(Effect::Unknown)
    }

    fn driver(&self) -> Driver {
        Driver::in_transaction(self.call.id())
    }

    fn call(&self) -> &Call {
        &self.call
    }
}

impl<D: Dialect> Access for Transaction<'_, D> {
    type Run = TxRun;
    type Guard = InTransaction<D>;

    fn guard(&mut self) -> &mut D::Connection {
        &mut *self
    }

    async fn reserve(&mut self, call: Call) -> Result<Step<TxRun>, Error> {
        reserve::<D>(&mut *self, Records::shared(), call).await
    }

    async fn settle(&mut self, run: TxRun, settlement: Settlement) -> Result<(), Error> {
        settle::<D>(&mut *self, Records::shared(), run, settlement).await
    }
}

impl<D: Dialect> Access for OnTx<'_, '_, D> {
    type Run = TxRun;
    type Guard = InTransaction<D>;

    fn guard(&mut self) -> &mut D::Connection {
        &mut *self.tx
    }

    async fn reserve(&mut self, call: Call) -> Result<Step<TxRun>, Error> {
        reserve::<D>(&mut *self.tx, &self.records, call).await
    }

    async fn settle(&mut self, run: TxRun, settlement: Settlement) -> Result<(), Error> {
        settle::<D>(&mut *self.tx, &self.records, run, settlement).await
    }
}

/// What one look at the record gave.
#[derive(Debug)]
pub(super) enum Look {
    /// The row is ours.
    Ours,
    /// It is completed.
    Completed(Row),
    /// Somebody else is at it, or was a moment ago.
    InProgress,
}

/// One try: insert, else read in a statement of its own (a combined one can see neither), else take
/// over a row whose time is over.
pub(super) async fn look<D: Dialect>(
    conn: &mut D::Connection,
    records: &Records,
    call: &Call,
    owner: Owner,
) -> Result<Look, Error> {
    looked::<D>(conn, records, call, owner, None).await
}

/// As [`look`], for one that has asked for a while: it waits in the database first, for so long at
/// most.
async fn looked<D: Dialect>(
    conn: &mut D::Connection,
    records: &Records,
    call: &Call,
    owner: Owner,
    wait: Option<Duration>,
) -> Result<Look, Error> {
    let mut found = look_once::<D>(conn, records, call, owner, wait).await?;
    if matches!(found, Look::InProgress) {
        if call_path::holds_in_transaction(call.id()) {
            return Err(call.error(ErrorKind::Reentrant));
        }
        // A record whose time is over may be purged between the two statements, and then nobody is
        // at it. Who waits asks again in any case; who does not would be refused for nothing.
        if call.in_progress() == InProgress::Reject {
            found = look_once::<D>(conn, records, call, owner, None).await?;
        }
    }
    Ok(found)
}

async fn look_once<D: Dialect>(
    conn: &mut D::Connection,
    records: &Records,
    call: &Call,
    owner: Owner,
    wait: Option<Duration>,
) -> Result<Look, Error> {
    let failed = |error| call.name(classify::<D>(error));
    let statements = records.statements::<D>();
    let row =
        NewRow::of(call, owner).takes_lock(records.takes_locks() && !call_path::is_unlocked());
    let inserted = match wait {
        None => D::insert(&mut *conn, statements, row)
            .await
            .map_err(failed)?,
        Some(left) => D::insert_waiting(&mut *conn, statements, row, left)
            .await
            .map_err(failed)?
            .ok_or_else(|| circle(call))?,
    };
    match inserted {
        Inserted::Ours => return Ok(Look::Ours),
        Inserted::Held => return Ok(Look::InProgress),
        Inserted::Taken => {}
    }
    match D::read(&mut *conn, &statements.read, call.id())
        .await
        .map_err(failed)?
    {
        None => Ok(Look::InProgress),
        Some(found) if found.is_over => {
            let taken = D::take_over(&mut *conn, statements, row)
                .await
                .map_err(failed)?;
            Ok(if taken { Look::Ours } else { Look::InProgress })
        }
        Some(found) if found.outcome.is_some() => completed(call, found),
        // Where the body of another transaction may have committed it, and still runs.
        Some(found)
            if Running::contains(found.owner)
                && !D::REFUSES_HALF_DONE
                && !call_path::holds_unfinished(call.id()) =>
        {
            Ok(Look::InProgress)
        }
        Some(found) if Running::contains(found.owner) => Err(call.error(ErrorKind::Reentrant)),
        Some(found) => Err(abandoned::<D>(call, found.owner)),
    }
}

/// One of the two must give way, and the other one may be waiting in the database.
fn circle(call: &Call) -> Error {
    call.error(ErrorKind::RetryTransaction).detail(
        "the transaction that runs this key is itself waiting for a key or a row that this transaction \
         holds: take keys and rows in one order everywhere, keys first",
    )
}

/// A row without outcome whose call does not run here.
fn abandoned<D: Dialect>(call: &Call, owner: Owner) -> Error {
    let error = call.error(ErrorKind::Abandoned);
    if !owner.is_of_this_process() {
        return error;
    }
    error.detail(if D::REFUSES_HALF_DONE {
        "if a call was dropped midway in this very transaction, roll the transaction back: nothing of \
         it can be committed"
    } else {
        "if a call was dropped midway in this very transaction, roll the transaction back: a commit \
         would keep what it has done so far"
    })
}

pub(super) fn completed(call: &Call, row: Row) -> Result<Look, Error> {
    if !row.fingerprint.matches(call.fingerprint()) {
        return Err(call.error(ErrorKind::FingerprintMismatch));
    }
    if row.is_gone {
        return Err(call.error(ErrorKind::OutcomeGone));
    }
    Ok(Look::Completed(row))
}

pub(super) fn replay(call: Call, row: Row) -> Replay {
    Replay {
        call,
        outcome: row.outcome.unwrap_or_default(),
        recorded_at: row.recorded_at,
    }
}

/// How long a duplicate keeps asking, and how often.
pub(super) fn polling(call: &Call) -> Backoff {
    let budget = match call.in_progress() {
        InProgress::Wait(budget) => Some(budget),
        InProgress::Reject => None,
    };
    Backoff::new(budget, Duration::from_millis(2), Duration::from_millis(50))
}

async fn reserve<D: Dialect>(
    conn: &mut D::Connection,
    records: &Records,
    mut call: Call,
) -> Result<Step<TxRun>, Error> {
    call.enter_namespace(records.namespace_str());
    Ok(match find::<D>(conn, records, call).await? {
        Found::Run(run) => Step::Run(run),
        Found::Completed(call, row) => Step::Replay(replay(call, row)),
    })
}

/// What a call finds in the end.
pub(super) enum Found {
    /// Its own row.
    Run(TxRun),
    /// A completed one.
    Completed(Call, Row),
}

/// Looks until the call may run, has its answer, or has waited for long enough.
pub(super) async fn find<D: Dialect>(
    conn: &mut D::Connection,
    records: &Records,
    call: Call,
) -> Result<Found, Error> {
    let running = Running::register(Owner::fresh());
    let mut polling = polling(&call);
    let began = Instant::now();
    loop {
        let wait = (began.elapsed() >= ONLY_ASKING).then(|| polling.left());
        let looked = looked::<D>(conn, records, &call, running.owner(), wait).await;
        match looked.map_err(in_transaction)? {
            Look::Ours => {
                return Ok(Found::Run(TxRun {
                    call,
                    running,
                    commits_half_done: !D::REFUSES_HALF_DONE,
                }));
            }
            Look::Completed(row) => return Ok(Found::Completed(call, row)),
            // Asking again leaves the transaction as it is whatever happens to this future. A plain
            // lock wait inside the database would not: cancelled, it ends in an aborted transaction
            // whose commit sqlx reports as done.
            Look::InProgress => match polling.next() {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(call.error(ErrorKind::InProgress).after(RETRY_AFTER)),
            },
        }
    }
}

/// How long a duplicate asks before it also waits in the database, where circles are found.
const ONLY_ASKING: Duration = Duration::from_secs(1);

/// What a refused duplicate is told to wait: a transaction has no time limit of its own.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

pub(super) async fn settle<D: Dialect>(
    conn: &mut D::Connection,
    records: &Records,
    run: TxRun,
    settlement: Settlement,
) -> Result<(), Error> {
    let TxRun { call, running, .. } = run;
    match settlement {
        Settlement::Complete(outcome) => {
            let done = complete::<D>(conn, records, &call, running.owner(), &outcome).await;
            match done {
                // The body's own final error says more, and goes with a transaction that cannot be
                // committed.
                Err(error) if outcome::is_err(&outcome) && error.effect() == Effect::None => Ok(()),
                done => done.map_err(in_transaction),
            }
        }
        Settlement::Release => {
            // A caller who swallows the error and commits leaves nothing half-done. In an aborted
            // transaction this cannot run and need not.
            let statements = records.statements::<D>();
            let _ = D::release(conn, statements, call.id(), running.owner()).await;
            Ok(())
        }
    }
}

const NO_ROW: &str = "the reservation is not found after the body: the body ended the transaction, \
     rolled back to a savepoint from before the call, or changed `search_path`";
const NO_TABLE: &str = "the record table is not found after the body: the body changed `search_path` \
     or the current database; name the table with its schema (`Records::in_table`)";

/// The last statement of the protocol. It must touch our row: if it does not, the body ended,
/// replaced or poisoned the transaction, and a commit would prove nothing.
pub(super) async fn complete<D: Dialect>(
    conn: &mut D::Connection,
    records: &Records,
    call: &Call,
    owner: Owner,
    outcome: &[u8],
) -> Result<(), Error> {
    let statements = records.statements::<D>();
    let times = Times::of(call.retention());
    match D::complete(conn, statements, call.id(), owner, outcome, times).await {
        Ok(1) => Ok(()),
        Ok(_) => Err(call.error(ErrorKind::TransactionEnded).detail(NO_ROW)),
        Err(error) => {
            let elsewhere = table_is_gone::<D>(&error);
            let mut error = classify::<D>(error).effect_is(Effect::None);
            if elsewhere {
                error = error.of_kind(ErrorKind::TransactionEnded).detail(NO_TABLE);
            }
            Err(call.name(error))
        }
    }
}
