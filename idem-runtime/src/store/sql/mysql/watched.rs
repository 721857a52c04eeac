//! Who is at a record: a dirty read shows the row that is not committed, and locks nothing.

use std::time::Instant;

use sqlx::mysql::{MySql, MySqlRow};
use sqlx::{AssertSqlSafe, MySqlConnection, Row as _, SqlStr};

use super::from_row;
use crate::clock::Moment;
use crate::key::RecordId;
use crate::store::sql::dialect::{AtIt, Row, Watched};

impl Watched for MySql {
    const TELLS_RECORDS: bool = true;

    async fn status(
        conn: &mut MySqlConnection,
        sql: &SqlStr,
        id: RecordId,
    ) -> Result<Option<(Row, Option<Moment>)>, sqlx::Error> {
        let asked_at = Instant::now();
        let ask = sqlx::query(sql.clone()).bind(id.as_bytes().as_slice());
        let Some(row) = ask.fetch_optional(&mut *conn).await? else {
            return Ok(None);
        };
        let (found, since) = read(&row, asked_at)?;
        // What is not committed is not seen, whatever the session reads.
        if found.outcome.is_some() && row.try_get(7)? && !is_committed(conn, sql, id).await? {
            return Ok(None);
        }
        Ok(Some((found, since)))
    }

    async fn committed(
        conn: &mut MySqlConnection,
        sql: &SqlStr,
        ids: &[RecordId],
    ) -> Result<Vec<Row>, sqlx::Error> {
        // As below; and the level must not be left to the session, which may read what is not
        // committed.
        let ids: Vec<_> = ids.iter().map(|id| format!("X'{id}'")).collect();
        let sql = sql
            .as_str()
            .replace("id = ?", &format!("id IN ({})", ids.join(",")));
        let asked_at = Instant::now();
        let sql = format!("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; {sql}");
        let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await?;
        rows.iter().map(|row| from_row(row, asked_at)).collect()
    }

    async fn at_it(
        conn: &mut MySqlConnection,
        sql: &SqlStr,
        id: RecordId,
        inside: bool,
    ) -> Result<Option<AtIt>, sqlx::Error> {
        if inside {
            return Ok(None);
        }
        // Both in one packet: the level must not be left to somebody else's transaction. A packet of
        // several statements takes no arguments; the id is sixteen bytes of our own.
        let status = sql.as_str().replace('?', &format!("X'{id}'"));
        let dirty = format!("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED; {status}");
        let asked_at = Instant::now();
        let row = sqlx::raw_sql(AssertSqlSafe(dirty))
            .fetch_optional(conn)
            .await?;
        let row = row.map(|row| read(&row, asked_at)).transpose()?;
        // One that is over is a committed one, or about to be.
        Ok(row
            .filter(|(row, _)| !row.is_over)
            .map(|(row, since)| AtIt {
                owner: Some(row.owner),
                since,
                connection: None,
            }))
    }
}

/// Whether a session that reads what is not committed may take a completed row for one: nobody else
/// holds it.
async fn is_committed(
    conn: &mut MySqlConnection,
    sql: &SqlStr,
    id: RecordId,
) -> Result<bool, sqlx::Error> {
    let locking = "/*M! LOCK IN SHARE MODE SKIP LOCKED */ /*!80000 FOR SHARE SKIP LOCKED */";
    let sql = AssertSqlSafe(format!("{} {locking}", sql.as_str()));
    let ask = sqlx::query(sql).bind(id.as_bytes().as_slice());
    Ok(ask.fetch_optional(conn).await?.is_some())
}

fn read(row: &MySqlRow, asked_at: Instant) -> Result<(Row, Option<Moment>), sqlx::Error> {
    let since: Option<i64> = row.try_get(6)?;
    let since = since.and_then(|millis| u64::try_from(millis).ok());
    Ok((from_row(row, asked_at)?, since.map(Moment::from_millis)))
}
