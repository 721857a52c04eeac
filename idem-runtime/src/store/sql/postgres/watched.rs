//! Who is at a record: whoever holds its advisory lock.

use std::time::Instant;

use sqlx::postgres::Postgres;
use sqlx::{AssertSqlSafe, PgConnection, Row as _, SqlStr};

use super::{from_row, micros, newest, uuid};
use crate::clock::Moment;
use crate::key::RecordId;
use crate::store::sql::dialect::{AtIt, Row, Watched};

/// Reading the lock table takes none of the locks in it: nobody is refused because somebody asks.
/// A transaction that has written nothing, and so has no number, only reads the record: it replayed
/// the call and keeps the lock to its end.
pub(super) const HOLDER: &str = "SELECT held.pid, by.application_name, host(by.client_addr), by.xact_start \
     FROM pg_locks AS held LEFT JOIN pg_stat_activity AS by ON by.pid = held.pid \
     WHERE held.locktype = 'advisory' AND held.objsubid = 1 AND held.granted \
     AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
     AND held.mode = 'ExclusiveLock' \
     AND held.classid::int8 = $1 AND held.objid::int8 = $2 # '{table}'::regclass::oid::int8 \
     AND held.pid IS DISTINCT FROM pg_backend_pid() AND (held.pid IS NULL OR EXISTS ( \
     SELECT FROM pg_locks AS number WHERE number.pid = held.pid AND number.granted \
     AND number.locktype = 'transactionid' AND number.mode = 'ExclusiveLock')) LIMIT 1";

/// Without a lock there is nobody to be seen.
pub(super) const NOBODY: &str = "SELECT NULL::int4, NULL::text, NULL::text, NULL::timestamptz \
     WHERE $1::int8 <> $1 OR $2::int8 <> $2";

impl Watched for Postgres {
    const TELLS_RECORDS: bool = true;

    async fn status(
        conn: &mut PgConnection,
        sql: &SqlStr,
        id: RecordId,
    ) -> Result<Option<(Row, Option<Moment>)>, sqlx::Error> {
        let asked_at = Instant::now();
        let ask = sqlx::query(sql.clone()).bind(uuid(id));
        let rows = ask.fetch_all(conn).await?;
        let read = |row: &_| Ok((from_row(row, asked_at)?, micros(row, 8)?.map(moment)));
        newest(&rows, read, |(row, _)| row)
    }

    async fn committed(
        conn: &mut PgConnection,
        sql: &SqlStr,
        ids: &[RecordId],
    ) -> Result<Vec<Row>, sqlx::Error> {
        let sql = sql.as_str().replace("id = $1", "id = ANY($1)");
        let ids: Vec<_> = ids.iter().map(|id| uuid(*id)).collect();
        let asked_at = Instant::now();
        let ask = sqlx::query(AssertSqlSafe(sql)).bind(ids);
        let rows = ask.fetch_all(conn).await?;
        rows.iter().map(|row| from_row(row, asked_at)).collect()
    }

    async fn at_it(
        conn: &mut PgConnection,
        sql: &SqlStr,
        id: RecordId,
        _inside: bool,
    ) -> Result<Option<AtIt>, sqlx::Error> {
        let lock = id.lock_number().cast_unsigned();
        let holder = sqlx::query(sql.clone())
            .bind((lock >> 32).cast_signed())
            .bind((lock & u64::from(u32::MAX)).cast_signed())
            .fetch_optional(conn)
            .await?;
        let Some(row) = holder else {
            return Ok(None);
        };
        // A transaction that is only prepared has no process any more.
        let process = row.try_get::<Option<i32>, _>(0)?;
        let application = row.try_get::<Option<&str>, _>(1)?.unwrap_or_default();
        let address = row.try_get::<Option<&str>, _>(2)?;
        Ok(Some(AtIt {
            owner: None,
            since: micros(&row, 3)?.map(moment),
            connection: process.map(|process| {
                let from = address.map_or_else(String::new, |address| format!(" from {address}"));
                format!("process {process} \"{application}\"{from}")
            }),
        }))
    }
}

fn moment(micros: i64) -> Moment {
    Moment::from_millis(u64::try_from(micros.div_euclid(1000)).unwrap_or(0))
}
