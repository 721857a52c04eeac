use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

use super::LeasedSql;
use super::dialect::{Claim, LeaseDialect, LeaseRow, NewLease, lease_millis};
use super::lent::Lent;
use crate::error::{Effect, Error, ErrorKind};
use crate::key::RecordId;
use crate::protocol::{Decision, decide};
use crate::retention::Retention;
use crate::store::sql::Times;
use crate::store::sql::dialect::classify;
use crate::store::{Held, Request, Reservation, Reserved, Store, Stored};

/// How often a step that the database gave up, and did not do, is tried.
const TRIES: usize = 4;

/// How often a record is looked at while others are faster.
const LOOKS: usize = 8;

/// Does a step of one statement, again where the database gave it up.
macro_rules! step {
    ($store:ident, $conn:ident => $statement:expr) => {{
        let step = $store.within(async {
            let mut lent = $store.connection().await.map_err(failed::<D>)?;
            let mut tries = 1;
            loop {
                let mut $conn = Lent::new(&mut lent);
                let answer = $statement.await;
                $conn.answered();
                match answer {
                    Ok(answer) => return Ok(answer),
                    Err(error) if tries < TRIES && was_given_up::<D>(&error) => tries += 1,
                    Err(error) => return Err(failed::<D>(error)),
                }
            }
        });
        step.await
            .map_err(|error: Error| error.effect_is(Effect::Unknown))
    }};
}

impl<D: LeaseDialect> LeasedSql<D> {
    /// Removes at most `limit` reservations whose lease ended at least `over_for` ago: calls whose
    /// process died and that nobody repeated. [`Store::purge`] leaves them, since their effect is
    /// unknown; choose a time after which nobody asks any more. Those that are held until somebody
    /// decides (`on_crash = "hold"`) stay. Says how many, here and in the log.
    ///
    /// # Errors
    /// The database cannot be used.
    ///
    /// # Cancel safety
    /// Safe to stop at any time.
    pub async fn purge_abandoned(&self, over_for: Duration, limit: usize) -> Result<usize, Error> {
        let (over_for, limit) = (lease_millis(over_for), rows(limit));
        let gone = step!(self, conn =>
            D::purge_abandoned_leases(&mut conn, self.statements(), over_for, limit))?;
        if gone > 0 {
            tracing::warn!(table = %self.inner.table, count = gone, "abandoned reservations were removed: whether their effects happened was never known");
        }
        Ok(usize::try_from(gone).unwrap_or(usize::MAX))
    }

    /// Reserves, or tells why not; `Err` where the database could not be asked.
    async fn try_to_reserve(&self, request: &Request<'_>) -> Result<Reserved, sqlx::Error> {
        let entrant = self.inner.lanes.enter(request.id);
        let (mut turn, shared) = entrant.turn().await;
        if let Some(row) = shared {
            match decision(request, &row) {
                Decision::Grant(_) => {}
                decision => return Ok(row.answer(decision, request)),
            }
        }
        let new = NewLease::of(request);
        let _permit = self.inner.reserving.acquire().await;
        let mut lent = self.inner.pool.acquire().await?;
        for _ in 0..LOOKS {
            entrant.begin(&mut turn);
            let mut conn = Lent::new(&mut lent);
            let claim = D::claim(&mut conn, self.statements(), new).await;
            conn.answered();
            match claim? {
                Claim::Granted(fence) => {
                    return Ok(Reserved::Granted(Reservation::new(request, fence)));
                }
                Claim::Found(row) => match decision(request, &row) {
                    Decision::Grant(_) => {
                        let seen = (row.owner, row.record.fence);
                        let mut conn = Lent::new(&mut lent);
                        let taken = D::take_lease_over(&mut conn, self.statements(), new, seen);
                        let taken = taken.await;
                        conn.answered();
                        if let Some(fence) = taken? {
                            return Ok(Reserved::Granted(Reservation::new(request, fence)));
                        }
                    }
                    decision => return Ok(turn.share(row).answer(decision, request)),
                },
                Claim::Contended => {}
            }
            // Somebody else was faster by less than this: looking again shows what they did.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(Reserved::InProgress { free_in: None })
    }

    async fn within<T>(&self, step: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let limit = self.inner.limit;
        tokio::time::timeout(limit, step).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::StoreUnavailable)
                .detail(format!("the database did not answer within {limit:?}")))
        })
    }
}

fn decision(request: &Request<'_>, row: &LeaseRow) -> Decision {
    // The database gives the fence, when it grants.
    decide(
        Some(&row.record),
        request.owner,
        request.fingerprint,
        0,
        row.now,
    )
}

/// An error of a step, which has no transaction that could be retried.
fn failed<D: LeaseDialect>(error: sqlx::Error) -> Error {
    let error = classify::<D>(error);
    match error.kind() {
        ErrorKind::RetryTransaction => error
            .of_kind(ErrorKind::StoreUnavailable)
            .detail("the database gave the statement up again and again"),
        _ => error,
    }
}

/// Whether the database gave the statement up: nothing of it was done.
fn was_given_up<D: LeaseDialect>(error: &sqlx::Error) -> bool {
    let error = error.as_database_error();
    error.is_some_and(crate::store::sql::was_given_up::<D>)
}

/// Whether the connection was lost: whether the statement was done is not known.
fn was_lost(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(_))
}

fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn held(rows: u64) -> Held {
    if rows == 0 { Held::No } else { Held::Yes }
}

impl<D: LeaseDialect> Store for LeasedSql<D> {
    fn identity(&self) -> Option<usize> {
        Some(std::sync::Arc::as_ptr(&self.inner) as usize)
    }

    fn namespace(&self) -> &str {
        &self.inner.namespace
    }

    /// # Cancel safety
    /// The reservation may have been made; it ends with its lease.
    async fn reserve(&self, request: &Request<'_>) -> Result<Reserved, Error> {
        let reserved = self.within(async {
            let mut tries = 1;
            loop {
                match self.try_to_reserve(request).await {
                    Ok(reserved) => return Ok(reserved),
                    // Asked again with the same owner, a reservation that was made is ours.
                    Err(error)
                        if tries < TRIES && (was_given_up::<D>(&error) || was_lost(&error)) =>
                    {
                        tries += 1;
                    }
                    Err(error) => return Err(failed::<D>(error)),
                }
            }
        });
        // The body has not run.
        let effect = |error: Error| error.effect_is(Effect::None);
        reserved.await.map_err(effect)
    }

    /// # Cancel safety
    /// The outcome may have been recorded.
    async fn complete(
        &self,
        reservation: &Reservation,
        outcome: Bytes,
        retention: Retention,
    ) -> Result<Held, Error> {
        let times = Times::of(retention);
        let done = step!(self, conn =>
            D::complete_lease(&mut conn, self.statements(), reservation, &outcome, times))?;
        if done > 0 {
            self.changed_shard(reservation.id).notify_waiters();
        }
        Ok(held(done))
    }

    /// # Cancel safety
    /// The record may have been given back; if not, its lease ends.
    async fn release(&self, reservation: &Reservation) -> Result<Held, Error> {
        let done = step!(self, conn =>
            D::release_lease(&mut conn, self.statements(), reservation))?;
        if done > 0 {
            self.changed_shard(reservation.id).notify_waiters();
        }
        Ok(held(done))
    }

    /// # Cancel safety
    /// The lease may have been extended.
    async fn renew(&self, reservation: &Reservation, lease: Duration) -> Result<Held, Error> {
        let lease = lease_millis(lease);
        let done = step!(self, conn =>
            D::renew_lease(&mut conn, self.statements(), reservation, lease))?;
        Ok(held(done))
    }

    /// # Cancel safety
    /// Changes nothing.
    async fn lookup(&self, id: RecordId) -> Result<Option<Stored>, Error> {
        let found = step!(self, conn => D::lookup_lease(&mut conn, self.statements(), id))?;
        Ok(found.and_then(|(stored, now)| stored.as_of(now)))
    }

    /// # Cancel safety
    /// The record may have been removed.
    async fn forget(&self, id: RecordId) -> Result<bool, Error> {
        let gone = step!(self, conn => D::forget_lease(&mut conn, self.statements(), id))?;
        if gone > 0 {
            self.changed_shard(id).notify_waiters();
        }
        Ok(gone > 0)
    }

    /// Two short statements that leave locked rows alone.
    ///
    /// # Cancel safety
    /// Safe to stop at any time.
    async fn purge(&self, limit: usize) -> Result<usize, Error> {
        let limit = rows(limit);
        let gone = step!(self, conn => D::purge_leases(&mut conn, self.statements(), limit))?;
        let rest = limit.saturating_sub(i64::try_from(gone).unwrap_or(i64::MAX));
        let buried = if rest > 0 {
            step!(self, conn => D::bury_leases(&mut conn, self.statements(), rest))?
        } else {
            0
        };
        Ok(usize::try_from(gone + buried).unwrap_or(usize::MAX))
    }

    /// Ends when a call over this store, or a clone of it, completed, released or forgot the record.
    /// Other processes are not heard.
    fn changed(&self, id: RecordId) -> impl Future<Output = ()> + Send {
        // Made here and not at the first poll: a change from now on is not missed.
        self.changed_shard(id).notified()
    }
}
