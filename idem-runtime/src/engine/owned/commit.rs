//! Commits, and what to make of one whose answer did not come.

use std::time::Duration;

use bytes::Bytes;
use sqlx::{Pool, Transaction};

use super::begin;
use super::close::Begun;
use crate::engine::backoff::Backoff;
use crate::engine::transaction::{self, Look, look};
use crate::error::{Effect, Error, ErrorKind};
use crate::operation::Call;
use crate::protocol::Owner;
use crate::store::sql::{
    Dialect, Inserted, NewRow, Records, Running, classify, describe, refuses_commit,
};

/// How long a commit whose answer was lost is asked after.
const ASKING: Duration = Duration::from_secs(10);

pub(super) async fn commit<D: Dialect>(
    tx: Transaction<'static, D>,
    pool: &Pool<D>,
    records: &Records,
    call: &Call,
    owner: Owner,
) -> Result<(), Error> {
    let Err(error) = tx.commit().await else {
        return Ok(());
    };
    if refuses_commit::<D>(&error) {
        return Err(call.name(refused::<D>(error)));
    }
    match resolve(pool, records, call, owner).await {
        Ok(true) => Ok(()),
        Ok(false) => {
            let error = classify::<D>(error)
                .detail("the connection was lost at the commit, and nothing was committed");
            Err(call.name(error).effect_is(Effect::None))
        }
        Err(_) => Err(call.error(ErrorKind::CommitUnknown).caused_by(error)),
    }
}

/// The database itself has refused the commit: a lost race may be run again, a constraint of the
/// application's (or its trigger) refuses the same again.
fn refused<D: Dialect>(error: sqlx::Error) -> Error {
    let described = describe::<D>(&error);
    if described.kind == ErrorKind::RetryTransaction {
        return classify::<D>(error).effect_is(Effect::None);
    }
    Error::new(ErrorKind::CommitRefused)
        .because(described.text)
        .caused_by(error)
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
        Some(ASKING),
        Duration::from_millis(10),
        Duration::from_millis(500),
    );
    loop {
        // A database that does not answer must not hold the call up for longer than one that refuses.
        let asked = tokio::time::timeout(backoff.left(), ask(pool, records, call, owner)).await;
        match asked {
            Ok(Ok(Some(held))) => return Ok(held),
            Ok(Ok(None) | Err(_)) | Err(_) => match backoff.next() {
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
    let mut tx = begin(pool, None).await?;
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
pub(super) async fn record_alone<D: Dialect>(begun: Begun<D>, outcome: Bytes) {
    let Begun {
        pool,
        records,
        call,
        leader,
        ..
    } = begun;
    let (pool, records, call) = (&pool, &records, &call);
    let running = Running::register(Owner::fresh());
    let record = async {
        let mut tx = begin(pool, None).await?;
        let recorded = async {
            let found = look::<D>(&mut tx, records, call, running.owner()).await?;
            if !matches!(found, Look::Ours) {
                return Ok(false);
            }
            transaction::complete::<D>(&mut tx, records, call, running.owner(), &outcome).await?;
            Ok(true)
        };
        match recorded.await {
            Ok(true) => tx.commit().await.map(|()| true).map_err(classify::<D>),
            other => {
                let _ = tx.rollback().await;
                other
            }
        }
    };
    match record.await {
        Ok(true) => leader.land(outcome),
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(record = %call.id(), error = %error, "a final error could not be recorded");
        }
    }
}
