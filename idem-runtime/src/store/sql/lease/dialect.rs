use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use sqlx::SqlStr;

use crate::clock::Moment;
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;
use crate::protocol::{Decision, Fence, Owner, Record, State};
use crate::retention::MAX_RETENTION;
use crate::store::sql::dialect::{FOREVER_MILLIS, cut};
use crate::store::sql::schema::Shape;
use crate::store::sql::{Dialect, Times};
use crate::store::{Request, Reservation, Reserved, Stored};

/// The statements of one database, for one table.
#[derive(Debug, Clone)]
pub struct LeaseStatements {
    pub(super) claim: SqlStr,
    /// What a claim finds, where it cannot tell by itself.
    #[cfg_attr(not(any(feature = "mysql", feature = "sqlite")), allow(dead_code))]
    pub(super) read: Option<SqlStr>,
    pub(super) take_over: SqlStr,
    pub(super) complete: SqlStr,
    pub(super) release: SqlStr,
    pub(super) renew: SqlStr,
    pub(super) lookup: SqlStr,
    pub(super) forget: SqlStr,
    pub(super) purge: SqlStr,
    pub(super) bury: SqlStr,
    pub(super) purge_abandoned: SqlStr,
}

/// A reservation about to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewLease<'a> {
    pub(super) id: RecordId,
    pub(super) scope: &'a str,
    pub(super) key_text: Option<&'a str>,
    pub(super) fingerprint: Fingerprint,
    pub(super) owner: Owner,
    pub(super) lease_millis: i64,
}

impl<'a> NewLease<'a> {
    pub(super) fn of(request: &Request<'a>) -> Self {
        Self {
            id: request.id,
            scope: request.scope,
            key_text: request.key_text.map(cut),
            fingerprint: request.fingerprint,
            owner: request.owner,
            lease_millis: lease_millis(request.lease),
        }
    }
}

/// Whole milliseconds, rounded up, at least one and no more than a date can hold.
pub(super) fn lease_millis(lease: Duration) -> i64 {
    let millis = lease.as_nanos().div_ceil(1_000_000);
    let millis = millis.clamp(1, MAX_RETENTION.as_millis());
    i64::try_from(millis).unwrap_or(i64::MAX)
}

/// A row as it was read, with the database's time then.
#[derive(Debug)]
pub struct LeaseRow {
    pub(super) record: Record,
    /// Who reserved it last, completed since or not.
    pub(super) owner: Owner,
    pub(super) created_at: Moment,
    pub(super) now: Moment,
    /// The time that is left until its lease or its retention is over, exactly.
    pub(super) left: Option<Duration>,
}

impl LeaseRow {
    /// What the request gets, told by the finest clock there is.
    pub(super) fn answer(&self, decision: Decision, request: &Request<'_>) -> Reserved {
        let mut answer = Reserved::from_decision(decision, request, self.now);
        match &mut answer {
            Reserved::InProgress { free_in } => *free_in = self.left,
            Reserved::Completed { left, .. } => *left = self.left.into(),
            _ => {}
        }
        answer
    }
}

/// The columns that a record is made of, as they stand in the row.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) fingerprint: Fingerprint,
    pub(super) owner: Owner,
    pub(super) fence: i64,
    pub(super) outcome: Option<Bytes>,
    pub(super) lease_until: Option<Micros>,
    pub(super) created_at: Micros,
    pub(super) completed_at: Option<Micros>,
    pub(super) expires_at: Option<Micros>,
    pub(super) known_until: Option<Micros>,
    pub(super) now: Micros,
    pub(super) held: bool,
}

impl Columns {
    /// When the key is no longer known; `None` for ever.
    fn known(&self) -> Option<Micros> {
        let expires_at = self.expires_at?;
        let ends = self
            .known_until
            .map_or(expires_at, |known| known.max(expires_at));
        let forever = self.now.0.saturating_add(FOREVER_MILLIS / 2 * 1000);
        (ends.0 < forever).then_some(ends)
    }
}

/// Microseconds since the Unix epoch, as finely as any of the databases counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Micros(pub(super) i64);

impl Micros {
    fn past(self) -> Moment {
        Moment::from_millis(u64::try_from(self.0.div_euclid(1000)).unwrap_or(0))
    }

    /// Rounded up: what is not over by the database's reckoning is not over by ours.
    fn end(self) -> Moment {
        Self(self.0.saturating_add(999)).past()
    }
}

impl From<Columns> for LeaseRow {
    fn from(columns: Columns) -> Self {
        let ends = match columns.completed_at {
            None => columns.lease_until,
            Some(_) => columns.expires_at,
        };
        let known_until = columns.known().map(Micros::end);
        let state = match (columns.completed_at, columns.outcome) {
            (None, _) => State::Reserved {
                owner: columns.owner,
                lease_until: ends.map(Micros::end),
                held: columns.held,
            },
            (Some(at), Some(outcome)) => State::Completed {
                outcome,
                recorded_at: at.past(),
                keep_until: ends.map(Micros::end),
                known_until,
            },
            (Some(_), None) => State::Tombstone { until: known_until },
        };
        let left = |ends: Micros| u64::try_from(ends.0.saturating_sub(columns.now.0)).unwrap_or(0);
        Self {
            record: Record {
                fingerprint: columns.fingerprint,
                fence: fence(columns.fence),
                state,
            },
            owner: columns.owner,
            created_at: columns.created_at.past(),
            now: columns.now.past(),
            left: ends.map(|ends| Duration::from_micros(left(ends))),
        }
    }
}

pub(super) fn fence(number: i64) -> Fence {
    Fence::new(u64::try_from(number).unwrap_or(0))
}

/// Bits of a fence that no row has are those of no row.
pub(super) fn fence_column(fence: Fence) -> i64 {
    i64::try_from(fence.get()).unwrap_or(-1)
}

/// What a claim came to.
#[derive(Debug)]
#[non_exhaustive]
pub enum Claim {
    /// The record was absent and is ours.
    Granted(Fence),
    /// It is there.
    Found(LeaseRow),
    /// Another claim was made in the same moment: its row can be read now or a little later.
    Contended,
}

/// What differs between databases for a table with leases. Sealed, as [`Dialect`] is.
pub trait LeaseDialect: Dialect {
    #[doc(hidden)]
    fn lease_statements(table: &str) -> LeaseStatements;

    #[doc(hidden)]
    fn lease_shape() -> &'static Shape;

    /// Inserts the row if there is none, else reads it; never writes over one.
    #[doc(hidden)]
    fn claim(
        conn: &mut Self::Connection,
        statements: &LeaseStatements,
        new: NewLease<'_>,
    ) -> impl Future<Output = Result<Claim, sqlx::Error>> + Send;

    /// Replaces the row that was read, if it is still that row and its time is over.
    #[doc(hidden)]
    fn take_lease_over(
        conn: &mut Self::Connection,
        statements: &LeaseStatements,
        new: NewLease<'_>,
        seen: (Owner, Fence),
    ) -> impl Future<Output = Result<Option<Fence>, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn complete_lease(
        conn: &mut Self::Connection,
        statements: &LeaseStatements,
        held: &Reservation,
        outcome: &[u8],
        times: Times,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn release_lease(
        conn: &mut Self::Connection,
        statements: &LeaseStatements,
        held: &Reservation,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn renew_lease(
        conn: &mut Self::Connection,
        statements: &LeaseStatements,
        held: &Reservation,
        lease_millis: i64,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// The row whatever its time, with the database's time.
    #[doc(hidden)]
    fn lookup_lease(
        conn: &mut Self::Connection,
        statements: &LeaseStatements,
        id: RecordId,
    ) -> impl Future<Output = Result<Option<(Stored, Moment)>, sqlx::Error>> + Send;

    /// Removes the row unless it is reserved under a live lease, or over.
    #[doc(hidden)]
    fn forget_lease(
        conn: &mut Self::Connection,
        statements: &LeaseStatements,
        id: RecordId,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Removes rows whose keys are no longer known.
    #[doc(hidden)]
    fn purge_leases(
        conn: &mut Self::Connection,
        statements: &LeaseStatements,
        limit: i64,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Drops the outcomes that are over of rows whose keys are still known.
    #[doc(hidden)]
    fn bury_leases(
        conn: &mut Self::Connection,
        statements: &LeaseStatements,
        limit: i64,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Removes reservations whose lease ended this long ago, unless they are held.
    #[doc(hidden)]
    fn purge_abandoned_leases(
        conn: &mut Self::Connection,
        statements: &LeaseStatements,
        over_for_millis: i64,
        limit: i64,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_never_nothing_nor_beyond_a_date() {
        assert_eq!(lease_millis(Duration::ZERO), 1);
        assert_eq!(lease_millis(Duration::from_nanos(1)), 1);
        assert_eq!(lease_millis(Duration::from_micros(1_001)), 2);
        let longest = i64::try_from(MAX_RETENTION.as_millis());
        assert_eq!(Ok(lease_millis(Duration::MAX)), longest);
    }

    #[test]
    fn an_end_within_a_millisecond_is_not_over_yet() {
        let (now, end) = (Micros(10_000_500), Micros(10_000_900));
        assert!(now.past() < end.end());
        assert_eq!(Micros(10_000_000).end(), Micros(10_000_000).past());
    }
}
