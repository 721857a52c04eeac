//! The statements as each database binds and reads them.

use crate::steps::state::{Cause, Rest, SagaState, Stall};

pub(super) fn decode_error(
    what: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> sqlx::Error {
    sqlx::Error::Decode(what.into())
}

pub(super) fn sized<const N: usize>(bytes: &[u8]) -> Result<[u8; N], sqlx::Error> {
    bytes
        .try_into()
        .map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

pub(super) fn saga_state(text: String) -> Result<SagaState, sqlx::Error> {
    SagaState::from_text(&text).ok_or_else(|| decode_error("an unknown state of a saga"))
}

pub(super) fn rest(text: Option<String>) -> Result<Option<Rest>, sqlx::Error> {
    let known = |text: String| {
        Rest::from_text(&text).ok_or_else(|| decode_error("an unknown rest of a saga"))
    };
    text.map(known).transpose()
}

pub(super) fn stall(
    cause: Option<String>,
    step: Option<String>,
    error: Option<String>,
) -> Result<Option<Stall>, sqlx::Error> {
    let known = |text: String| {
        let cause = Cause::from_text(&text)
            .ok_or_else(|| decode_error("an unknown cause why a saga does not go on"))?;
        Ok(Stall { cause, step, error })
    };
    cause.map(known).transpose()
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
            let owner: $Id = row.try_get(8)?;
            Ok(Some(SagaRow {
                name: row.try_get(0)?,
                key: row.try_get(1)?,
                fingerprint: super::statements::sized(&row.try_get::<Vec<u8>, _>(2)?)?,
                input: row.try_get::<Option<Vec<u8>>, _>(3)?.map(Bytes::from),
                steps: row.try_get(4)?,
                state: super::statements::saga_state(row.try_get(5)?)?,
                cancelled: row.try_get(6)?,
                rest: super::statements::rest(row.try_get(7)?)?,
                owner: super::statements::sized($bytes(&owner))?,
                fence: row.try_get(9)?,
                failed_step: row.try_get(10)?,
                error: row.try_get(11)?,
                due_in: row.try_get(12)?,
                stall: super::statements::stall(
                    row.try_get(13)?,
                    row.try_get(14)?,
                    row.try_get(15)?,
                )?,
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
                    state: StepState::from_text(&state).ok_or_else(|| {
                        super::statements::decode_error("an unknown state of a step")
                    })?,
                    unknown: row.try_get(3)?,
                    left_alone: row.try_get(4)?,
                    attempts: row.try_get(5)?,
                    undo_attempts: row.try_get(6)?,
                    result: row.try_get::<Option<Vec<u8>>, _>(7)?.map(Bytes::from),
                    error: row.try_get(8)?,
                    forgiven: row.try_get(9)?,
                    undo_forgiven: row.try_get(10)?,
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
                .bind(change.stall.map(|stall| stall.cause.as_str()))
                .bind(change.stall.and_then(|stall| stall.step.clone()))
                .bind(change.stall.and_then(|stall| stall.error.clone()))
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
            stall: &Stall,
        ) -> Result<u64, sqlx::Error> {
            let put_off = sqlx::query(texts.put_off.clone())
                .bind(millis)
                .bind(stall.cause.as_str())
                .bind(stall.error.clone())
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
                let id = RecordId::from_bytes(super::statements::sized($bytes(&id))?);
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

        async fn list_sagas(
            conn: &mut Self::Connection,
            texts: &Texts,
            filter: &SagaFilter,
            after: RecordId,
            limit: i64,
        ) -> Result<Vec<SagaSummary>, sqlx::Error> {
            let mut list = sqlx::query(texts.list(filter)).bind($bind(*after.as_bytes()));
            if let Some(name) = filter.wanted_name() {
                list = list.bind(name.to_owned());
            }
            if let Some(age) = filter.least_age() {
                list = list.bind(-crate::steps::claim::millis(age));
            }
            let rows = list.bind(limit).persistent(false).fetch_all(conn).await?;
            let found = |row: &<Self as sqlx::Database>::Row| {
                let id: $Id = row.try_get(0)?;
                let stall =
                    super::statements::stall(row.try_get(5)?, row.try_get(6)?, row.try_get(7)?)?;
                Ok(SagaSummary {
                    id: RecordId::from_bytes(super::statements::sized($bytes(&id))?),
                    name: row.try_get(1)?,
                    key: row.try_get(2)?,
                    state: super::statements::saga_state(row.try_get(3)?)?,
                    rest: super::statements::rest(row.try_get(4)?)?,
                    cause: stall.as_ref().map(|stall| stall.cause),
                    step: stall.as_ref().and_then(|stall| stall.step.clone()),
                    error: stall.and_then(|stall| stall.error),
                    age: crate::steps::status::time(row.try_get(8)?),
                    due_in: row
                        .try_get::<Option<i64>, _>(9)?
                        .map(crate::steps::status::time),
                })
            };
            rows.iter().map(found).collect()
        }

        async fn count_sagas(
            conn: &mut Self::Connection,
            texts: &Texts,
            filter: &SagaFilter,
        ) -> Result<i64, sqlx::Error> {
            let mut count = sqlx::query(texts.count(filter));
            if let Some(name) = filter.wanted_name() {
                count = count.bind(name.to_owned());
            }
            if let Some(age) = filter.least_age() {
                count = count.bind(-crate::steps::claim::millis(age));
            }
            count.persistent(false).fetch_one(conn).await?.try_get(0)
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
pub(super) use statements;
