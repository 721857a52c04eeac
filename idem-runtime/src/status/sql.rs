//! Records in a database: in the caller's transaction, or from outside of all.

use std::time::Instant;

use bytes::Bytes;
use sqlx::{Pool, Transaction};

use super::ask::{Resolution, in_nobodys_hands};
use super::{Asked, Gone, Holder, Status};
use crate::clock::Moment;
use crate::engine::run_to_end;
use crate::error::Error;
use crate::key::RecordId;
use crate::protocol::Owner;
use crate::retention::Left;
use crate::store::Until;
use crate::store::sql::{
    AtIt, Dialect, OnTx, OwnPool as _, PoolWith, Records, Row, Running, Statements, Times,
    classify, held_or_failed, in_transaction,
};

impl<D: Dialect> Asked for &Pool<D> {
    fn namespace(&self) -> &str {
        Records::shared().namespace_str()
    }

    async fn look(&mut self, id: RecordId) -> Result<Status<Bytes>, Error> {
        look_outside(self, Records::shared(), id).await
    }

    async fn remove(&mut self, id: RecordId) -> Result<bool, Error> {
        remove_outside(self, Records::shared(), id).await
    }

    async fn resolve(&mut self, id: RecordId, resolution: Resolution) -> Result<(), Error> {
        resolve_outside(self, Records::shared(), id, resolution).await
    }
}

impl<D: Dialect> Asked for PoolWith<D> {
    fn namespace(&self) -> &str {
        self.records().namespace_str()
    }

    async fn look(&mut self, id: RecordId) -> Result<Status<Bytes>, Error> {
        look_outside(self.pool(), self.records(), id).await
    }

    async fn remove(&mut self, id: RecordId) -> Result<bool, Error> {
        remove_outside(self.pool(), self.records(), id).await
    }

    async fn resolve(&mut self, id: RecordId, resolution: Resolution) -> Result<(), Error> {
        resolve_outside(self.pool(), self.records(), id, resolution).await
    }
}

impl<D: Dialect> Asked for &PoolWith<D> {
    fn namespace(&self) -> &str {
        self.records().namespace_str()
    }

    async fn look(&mut self, id: RecordId) -> Result<Status<Bytes>, Error> {
        look_outside(self.pool(), self.records(), id).await
    }

    async fn remove(&mut self, id: RecordId) -> Result<bool, Error> {
        remove_outside(self.pool(), self.records(), id).await
    }

    async fn resolve(&mut self, id: RecordId, resolution: Resolution) -> Result<(), Error> {
        resolve_outside(self.pool(), self.records(), id, resolution).await
    }
}

impl<D: Dialect> Asked for &mut Transaction<'_, D> {
    fn namespace(&self) -> &str {
        Records::shared().namespace_str()
    }

    async fn look(&mut self, id: RecordId) -> Result<Status<Bytes>, Error> {
        look_inside::<D>(self, Records::shared(), id).await
    }

    async fn remove(&mut self, id: RecordId) -> Result<bool, Error> {
        remove_inside::<D>(self, Records::shared(), id).await
    }

    async fn resolve(&mut self, id: RecordId, resolution: Resolution) -> Result<(), Error> {
        resolve_inside::<D>(self, Records::shared(), id, &resolution).await
    }
}

impl<D: Dialect> Asked for OnTx<'_, '_, D> {
    fn namespace(&self) -> &str {
        self.records.namespace_str()
    }

    async fn look(&mut self, id: RecordId) -> Result<Status<Bytes>, Error> {
        look_inside::<D>(self.tx, &self.records, id).await
    }

    async fn remove(&mut self, id: RecordId) -> Result<bool, Error> {
        remove_inside::<D>(self.tx, &self.records, id).await
    }

    async fn resolve(&mut self, id: RecordId, resolution: Resolution) -> Result<(), Error> {
        resolve_inside::<D>(self.tx, &self.records, id, &resolution).await
    }
}

/// Goes on when the caller drops it: a connection goes back as it was.
pub(super) async fn look_outside<D: Dialect>(
    pool: &Pool<D>,
    records: &Records,
    id: RecordId,
) -> Result<Status<Bytes>, Error> {
    let (pool, records) = (pool.clone(), records.clone());
    run_to_end(async move {
        let mut conn = pool.acquire().await.map_err(classify::<D>)?;
        look::<D>(&mut conn, &records, id, false).await
    })
    .await
}

pub(super) async fn look_inside<D: Dialect>(
    conn: &mut D::Connection,
    records: &Records,
    id: RecordId,
) -> Result<Status<Bytes>, Error> {
    look::<D>(conn, records, id, true)
        .await
        .map_err(in_transaction)
}

async fn look<D: Dialect>(
    conn: &mut D::Connection,
    records: &Records,
    id: RecordId,
    inside: bool,
) -> Result<Status<Bytes>, Error> {
    let Statements { status, holder, .. } = records.statements::<D>();
    let found = D::status(conn, status, id).await.map_err(classify::<D>)?;
    if let Some((row, _)) = found
        && row.outcome.is_some()
        && !row.is_over
    {
        return completed(row);
    }
    // First who is at it, then what is committed: one that ends in between is seen by its outcome.
    let at_it = D::at_it(conn, holder, id, inside)
        .await
        .map_err(classify::<D>)?;
    match D::status(conn, status, id).await.map_err(classify::<D>)? {
        Some((row, _)) if row.outcome.is_some() && !row.is_over => completed(row),
        Some((row, since)) => Ok(unfinished(&row, since, at_it)),
        None => Ok(at_it.map_or(Status::Absent, |at_it| Status::InProgress(at_it.into()))),
    }
}

/// A row whose time is over, or without an outcome.
fn unfinished(row: &Row, since: Option<Moment>, at_it: Option<AtIt>) -> Status<Bytes> {
    // Who is seen at it may be this very row.
    if let Some(other) = at_it.filter(|at_it| at_it.owner != Some(row.owner)) {
        return Status::InProgress(other.into());
    }
    if row.outcome.is_some() {
        return Status::Absent;
    }
    let holder = Holder {
        owner: Some(row.owner),
        since,
        ..Holder::default()
    };
    if Running::contains(row.owner) {
        Status::InProgress(holder)
    } else {
        Status::Abandoned(holder)
    }
}

fn completed(row: Row) -> Result<Status<Bytes>, Error> {
    if row.is_gone {
        return Ok(Status::OutcomeGone(Gone {
            recorded_at: row.recorded_at,
            left: left(row.ends),
            bytes: None,
        }));
    }
    let outcome = row.outcome.unwrap_or_default();
    Status::recorded(outcome, row.recorded_at, left(row.until), left(row.ends))
}

fn left(until: Until) -> Left {
    let left = |end: Instant| end.saturating_duration_since(Instant::now());
    until.instant().map(left).into()
}

impl From<AtIt> for Holder {
    fn from(at_it: AtIt) -> Self {
        Self {
            owner: at_it.owner,
            since: at_it.since,
            connection: at_it.connection,
            ..Self::default()
        }
    }
}

pub(super) async fn remove_outside<D: Dialect>(
    pool: &Pool<D>,
    records: &Records,
    id: RecordId,
) -> Result<bool, Error> {
    // A statement that waits for the end of a running call would remove its outcome.
    if D::TELLS_RECORDS {
        in_nobodys_hands(look_outside(pool, records, id).await?)?;
    }
    if records.forget(pool, id).await? {
        return Ok(true);
    }
    in_nobodys_hands(look_outside(pool, records, id).await?).map(|()| false)
}

pub(super) async fn remove_inside<D: Dialect>(
    conn: &mut D::Connection,
    records: &Records,
    id: RecordId,
) -> Result<bool, Error> {
    in_nobodys_hands(look_inside::<D>(conn, records, id).await?)?;
    let gone = D::forget(conn, records.statements::<D>(), id).await;
    let gone = gone.map_err(|error| in_transaction(held_or_failed::<D>(error)))?;
    Ok(gone > 0)
}

/// Goes on when the caller drops it: a connection goes back as it was.
pub(super) async fn resolve_outside<D: Dialect>(
    pool: &Pool<D>,
    records: &Records,
    id: RecordId,
    resolution: Resolution,
) -> Result<(), Error> {
    let (pool, records) = (pool.clone(), records.clone());
    run_to_end(async move {
        let status = look_outside(&pool, &records, id).await?;
        let Some(owner) = left_by(&status) else {
            return resolution.is_recorded(status);
        };
        // Statements that complete a row are for transactions.
        let mut tx = D::begin(&pool).await.map_err(classify::<D>)?;
        let done = complete::<D>(&mut tx, &records, id, owner, &resolution).await?;
        tx.commit().await.map_err(classify::<D>)?;
        match done {
            true => Ok(()),
            false => resolution.is_recorded(look_outside(&pool, &records, id).await?),
        }
    })
    .await
}

pub(super) async fn resolve_inside<D: Dialect>(
    conn: &mut D::Connection,
    records: &Records,
    id: RecordId,
    resolution: &Resolution,
) -> Result<(), Error> {
    let status = look_inside::<D>(conn, records, id).await?;
    let Some(owner) = left_by(&status) else {
        return resolution.is_recorded(status);
    };
    let done = complete::<D>(conn, records, id, owner, resolution).await;
    match done.map_err(in_transaction)? {
        true => Ok(()),
        false => resolution.is_recorded(look_inside::<D>(conn, records, id).await?),
    }
}

/// The owner of a row that was left without an outcome.
fn left_by(status: &Status<Bytes>) -> Option<Owner> {
    match status {
        Status::Abandoned(holder) => holder.owner,
        _ => None,
    }
}

/// Completes the row in the name of the owner that left it. `false`: somebody was quicker.
async fn complete<D: Dialect>(
    conn: &mut D::Connection,
    records: &Records,
    id: RecordId,
    owner: Owner,
    resolution: &Resolution,
) -> Result<bool, Error> {
    let (statements, times) = (records.statements::<D>(), Times::of(resolution.retention));
    let rows = D::complete(conn, statements, id, owner, &resolution.outcome, times).await;
    Ok(rows.map_err(held_or_failed::<D>)? > 0)
}
