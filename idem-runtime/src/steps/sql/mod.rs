//! The tables of sagas. Every operation here is one statement; [`claim`](super::claim) and the runner
//! put them into transactions.

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
mod table;
mod texts;

use std::future::Future;

use sqlx::SqlStr;

use super::state::{Rest, SagaRow, SagaState, StepRow};
use crate::key::RecordId;
use crate::store::sql::schema::Shape;
use crate::version::VersionDialect;

pub use table::SagaTable;
pub(super) use texts::Texts;

/// A saga that is about to be begun.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct NewSaga<'a> {
    pub(super) id: RecordId,
    pub(super) name: &'a str,
    pub(super) key: &'a str,
    pub(super) fingerprint: &'a [u8; 17],
    pub(super) input: &'a [u8],
    pub(super) steps: &'a str,
    pub(super) owner: [u8; 16],
    pub(super) lease_millis: i64,
}

/// Whose saga it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct Held {
    pub(super) id: RecordId,
    pub(super) owner: [u8; 16],
    pub(super) fence: i64,
}

/// How a saga's row changes while it is held.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Change<'a> {
    pub(super) state: SagaState,
    pub(super) rest: Option<Rest>,
    pub(super) failed_step: Option<&'a str>,
    pub(super) error: Option<&'a str>,
    /// Until it may be touched again; `None`: not before somebody asks for it.
    pub(super) due_millis: Option<i64>,
}

/// How a saga's row changes when it is claimed.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct NewOwner {
    pub(super) id: RecordId,
    pub(super) owner: [u8; 16],
    pub(super) state: SagaState,
    pub(super) cancelled: bool,
    pub(super) lease_millis: i64,
}

/// A database that keeps sagas. Sealed with [`Dialect`](crate::store::sql::Dialect).
pub trait SagaDialect: VersionDialect {
    /// Whether a transaction that writes keeps every other one from writing: its lease can neither be
    /// extended nor taken while it lasts.
    #[doc(hidden)]
    const ONE_WRITER: bool;

    /// Whether the driver survives a statement whose future is dropped. Where it does not, a step whose
    /// future is dropped comes to its end in the background, and is rolled back then.
    #[doc(hidden)]
    const DROPPABLE: bool;

    /// The first statement in the transaction of a step: if that transaction ends inside the step,
    /// either `UNMARK` fails or `hold` finds nothing.
    #[doc(hidden)]
    const MARK: Option<&'static str>;

    /// The statement before `hold`.
    #[doc(hidden)]
    const UNMARK: Option<&'static str>;

    #[doc(hidden)]
    fn saga_texts(table: &str) -> Texts;

    #[doc(hidden)]
    fn saga_shape() -> &'static Shape;

    /// Does nothing where there is a row.
    #[doc(hidden)]
    fn begin_saga(
        conn: &mut Self::Connection,
        texts: &Texts,
        new: NewSaga<'_>,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Records a saga that was cancelled before it began; does nothing where there is a row.
    #[doc(hidden)]
    fn begin_cancelled(
        conn: &mut Self::Connection,
        texts: &Texts,
        new: NewSaga<'_>,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// With `lock`: `None` also where another transaction holds the row.
    #[doc(hidden)]
    fn read_saga(
        conn: &mut Self::Connection,
        texts: &Texts,
        id: RecordId,
        lock: bool,
    ) -> impl Future<Output = Result<Option<SagaRow>, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn read_steps(
        conn: &mut Self::Connection,
        texts: &Texts,
        id: RecordId,
    ) -> impl Future<Output = Result<Vec<StepRow>, sqlx::Error>> + Send;

    /// The row is locked.
    #[doc(hidden)]
    fn claim_saga(
        conn: &mut Self::Connection,
        texts: &Texts,
        new: NewOwner,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Extends the lease if it is still this owner's, and locks the row; `sql` is `hold` or `renew`.
    #[doc(hidden)]
    fn hold_saga(
        conn: &mut Self::Connection,
        sql: &SqlStr,
        held: Held,
        lease_millis: i64,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn change_saga(
        conn: &mut Self::Connection,
        texts: &Texts,
        held: Held,
        change: Change<'_>,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn end_saga(
        conn: &mut Self::Connection,
        texts: &Texts,
        held: Held,
        state: SagaState,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Puts the claimable saga off; the row is locked.
    #[doc(hidden)]
    fn put_off_saga(
        conn: &mut Self::Connection,
        texts: &Texts,
        id: RecordId,
        millis: i64,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Inserts the row, or updates the one that is there.
    #[doc(hidden)]
    fn write_step(
        conn: &mut Self::Connection,
        texts: &Texts,
        id: RecordId,
        row: &StepRow,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// The ids and keys of what is due, the longest due first.
    #[doc(hidden)]
    fn due_sagas(
        conn: &mut Self::Connection,
        texts: &Texts,
        name: &str,
        limit: i64,
    ) -> impl Future<Output = Result<Vec<(RecordId, String)>, sqlx::Error>> + Send;

    /// What is stuck is due now; says whether it was.
    #[doc(hidden)]
    fn unstick_saga(
        conn: &mut Self::Connection,
        texts: &Texts,
        id: RecordId,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Begins to count anew the attempts of what is not finished.
    #[doc(hidden)]
    fn recount_attempts(
        conn: &mut Self::Connection,
        texts: &Texts,
        id: RecordId,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn purge_sagas(
        conn: &mut Self::Connection,
        texts: &Texts,
        over_for_millis: i64,
        limit: i64,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;
}

fn decode_error(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> sqlx::Error {
    sqlx::Error::Decode(what.into())
}

fn sized<const N: usize>(bytes: &[u8]) -> Result<[u8; N], sqlx::Error> {
    bytes
        .try_into()
        .map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// The statements in terms of how an id is bound and read. `None` for a lock that is not had: a
/// database without `SKIP LOCKED` has one writer, who has it all.
macro_rules! statements {
    ($bind:expr, $Id:ty, $bytes:expr) => {
        async fn begin_saga(
            conn: &mut Self::Connection,
            texts: &Texts,
            new: NewSaga<'_>,
        ) -> Result<(), sqlx::Error> {
            let begin = sqlx::query(texts.begin.clone())
                .bind($bind(*new.id.as_bytes()))
                .bind(new.name.to_owned())
                .bind(new.key.to_owned())
                .bind(new.fingerprint.to_vec())
                .bind(new.input.to_vec())
                .bind(new.steps.to_owned())
                .bind($bind(new.owner))
                .bind(new.lease_millis);
            begin.execute(conn).await.map(drop)
        }

        async fn begin_cancelled(
            conn: &mut Self::Connection,
            texts: &Texts,
            new: NewSaga<'_>,
        ) -> Result<(), sqlx::Error> {
            let begin = sqlx::query(texts.begin_cancelled.clone())
                .bind($bind(*new.id.as_bytes()))
                .bind(new.name.to_owned())
                .bind(new.key.to_owned())
                .bind(new.fingerprint.to_vec())
                .bind(new.steps.to_owned())
                .bind($bind(new.owner));
            begin.execute(conn).await.map(drop)
        }

        async fn read_saga(
            conn: &mut Self::Connection,
            texts: &Texts,
            id: RecordId,
            lock: bool,
        ) -> Result<Option<SagaRow>, sqlx::Error> {
            let sql = if lock { &texts.lock } else { &texts.read };
            let read = sqlx::query(sql.clone()).bind($bind(*id.as_bytes()));
            let Some(row) = read.fetch_optional(conn).await? else {
                return Ok(None);
            };
            let state: String = row.try_get(5)?;
            let owner: $Id = row.try_get(8)?;
            Ok(Some(SagaRow {
                name: row.try_get(0)?,
                key: row.try_get(1)?,
                fingerprint: super::sized(&row.try_get::<Vec<u8>, _>(2)?)?,
                input: row.try_get::<Option<Vec<u8>>, _>(3)?.map(Bytes::from),
                steps: row.try_get(4)?,
                state: SagaState::from_text(&state)
                    .ok_or_else(|| super::decode_error("an unknown state of a saga"))?,
                cancelled: row.try_get(6)?,
                rest: match row.try_get::<Option<String>, _>(7)? {
                    None => None,
                    Some(text) => Some(
                        Rest::from_text(&text)
                            .ok_or_else(|| super::decode_error("an unknown rest of a saga"))?,
                    ),
                },
                owner: super::sized($bytes(&owner))?,
                fence: row.try_get(9)?,
                failed_step: row.try_get(10)?,
                error: row.try_get(11)?,
                due_in: row.try_get(12)?,
            }))
        }

        async fn read_steps(
            conn: &mut Self::Connection,
            texts: &Texts,
            id: RecordId,
        ) -> Result<Vec<StepRow>, sqlx::Error> {
            let read = sqlx::query(texts.steps.clone()).bind($bind(*id.as_bytes()));
            let rows = read.fetch_all(conn).await?;
            let step = |row: &<Self as sqlx::Database>::Row| {
                let state: String = row.try_get(2)?;
                Ok(StepRow {
                    recorded: true,
                    number: row.try_get(0)?,
                    name: row.try_get(1)?,
                    state: StepState::from_text(&state)
                        .ok_or_else(|| super::decode_error("an unknown state of a step"))?,
                    unknown: row.try_get(3)?,
                    left_alone: row.try_get(4)?,
                    attempts: row.try_get(5)?,
                    undo_attempts: row.try_get(6)?,
                    result: row.try_get::<Option<Vec<u8>>, _>(7)?.map(Bytes::from),
                    error: row.try_get(8)?,
                })
            };
            rows.iter().map(step).collect()
        }

        async fn claim_saga(
            conn: &mut Self::Connection,
            texts: &Texts,
            new: NewOwner,
        ) -> Result<u64, sqlx::Error> {
            let claim = sqlx::query(texts.claim.clone())
                .bind($bind(new.owner))
                .bind(new.state.as_str())
                .bind(new.cancelled)
                .bind(new.lease_millis)
                .bind($bind(*new.id.as_bytes()));
            claim.execute(conn).await.map(|done| done.rows_affected())
        }

        async fn hold_saga(
            conn: &mut Self::Connection,
            sql: &SqlStr,
            held: Held,
            lease_millis: i64,
        ) -> Result<u64, sqlx::Error> {
            let hold = sqlx::query(sql.clone())
                .bind(lease_millis)
                .bind($bind(*held.id.as_bytes()))
                .bind($bind(held.owner))
                .bind(held.fence);
            hold.execute(conn).await.map(|done| done.rows_affected())
        }

        async fn change_saga(
            conn: &mut Self::Connection,
            texts: &Texts,
            held: Held,
            change: Change<'_>,
        ) -> Result<u64, sqlx::Error> {
            let update = sqlx::query(texts.change.clone())
                .bind(change.state.as_str())
                .bind(change.rest.map(Rest::as_str))
                .bind(change.failed_step.map(str::to_owned))
                .bind(change.error.map(str::to_owned))
                .bind(change.due_millis)
                .bind($bind(*held.id.as_bytes()))
                .bind($bind(held.owner))
                .bind(held.fence);
            update.execute(conn).await.map(|done| done.rows_affected())
        }

        async fn end_saga(
            conn: &mut Self::Connection,
            texts: &Texts,
            held: Held,
            state: SagaState,
        ) -> Result<u64, sqlx::Error> {
            let end = sqlx::query(texts.end.clone())
                .bind(state.as_str())
                .bind($bind(*held.id.as_bytes()))
                .bind($bind(held.owner))
                .bind(held.fence);
            end.execute(conn).await.map(|done| done.rows_affected())
        }

        async fn put_off_saga(
            conn: &mut Self::Connection,
            texts: &Texts,
            id: RecordId,
            millis: i64,
        ) -> Result<u64, sqlx::Error> {
            let put_off = sqlx::query(texts.put_off.clone())
                .bind(millis)
                .bind($bind(*id.as_bytes()));
            put_off.execute(conn).await.map(|done| done.rows_affected())
        }

        async fn write_step(
            conn: &mut Self::Connection,
            texts: &Texts,
            id: RecordId,
            row: &StepRow,
        ) -> Result<u64, sqlx::Error> {
            let sql = if row.recorded {
                &texts.update_step
            } else {
                &texts.insert_step
            };
            let write = sqlx::query(sql.clone())
                .bind(row.name.clone())
                .bind(row.state.as_str())
                .bind(row.unknown)
                .bind(row.left_alone)
                .bind(row.attempts)
                .bind(row.undo_attempts)
                .bind(row.result.as_ref().map(|result| result.to_vec()))
                .bind(row.error.clone())
                .bind($bind(*id.as_bytes()))
                .bind(row.number);
            write.execute(conn).await.map(|done| done.rows_affected())
        }

        async fn due_sagas(
            conn: &mut Self::Connection,
            texts: &Texts,
            name: &str,
            limit: i64,
        ) -> Result<Vec<(RecordId, String)>, sqlx::Error> {
            let due = sqlx::query(texts.due.clone())
                .bind(name.to_owned())
                .bind(limit);
            let rows = due.fetch_all(conn).await?;
            let found = |row: &<Self as sqlx::Database>::Row| {
                let id: $Id = row.try_get(0)?;
                let id = RecordId::from_bytes(super::sized($bytes(&id))?);
                Ok((id, row.try_get(1)?))
            };
            rows.iter().map(found).collect()
        }

        async fn unstick_saga(
            conn: &mut Self::Connection,
            texts: &Texts,
            id: RecordId,
        ) -> Result<u64, sqlx::Error> {
            let unstick = sqlx::query(texts.unstick.clone()).bind($bind(*id.as_bytes()));
            unstick.execute(conn).await.map(|done| done.rows_affected())
        }

        async fn recount_attempts(
            conn: &mut Self::Connection,
            texts: &Texts,
            id: RecordId,
        ) -> Result<u64, sqlx::Error> {
            let recount = sqlx::query(texts.recount.clone()).bind($bind(*id.as_bytes()));
            recount.execute(conn).await.map(|done| done.rows_affected())
        }

        async fn purge_sagas(
            conn: &mut Self::Connection,
            texts: &Texts,
            over_for_millis: i64,
            limit: i64,
        ) -> Result<u64, sqlx::Error> {
            let purge = sqlx::query(texts.purge.clone())
                .bind(over_for_millis)
                .bind(limit);
            purge.execute(conn).await.map(|done| done.rows_affected())
        }
    };
}
use statements;
