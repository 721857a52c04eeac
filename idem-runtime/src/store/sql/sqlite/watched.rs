//! Who is at a record: there is one writer at a time, and nobody sees what it writes.

use std::time::Instant;

use sqlx::sqlite::Sqlite;
use sqlx::{AssertSqlSafe, Row as _, SqlStr, SqliteConnection};

use super::from_row;
use crate::clock::Moment;
use crate::key::RecordId;
use crate::store::sql::dialect::{AtIt, Row, Watched};
use crate::store::sql::was_given_up;

impl Watched for Sqlite {
    const TELLS_RECORDS: bool = false;

    async fn status(
        conn: &mut SqliteConnection,
        sql: &SqlStr,
        id: RecordId,
    ) -> Result<Option<(Row, Option<Moment>)>, sqlx::Error> {
        let asked_at = Instant::now();
        let ask = sqlx::query(sql.clone()).bind(id.as_bytes().to_vec());
        let Some(row) = ask.fetch_optional(conn).await? else {
            return Ok(None);
        };
        let since = u64::try_from(row.try_get::<i64, _>(6)?).ok();
        Ok(Some((
            from_row(&row, asked_at)?,
            since.map(Moment::from_millis),
        )))
    }

    async fn committed(
        conn: &mut SqliteConnection,
        sql: &SqlStr,
        ids: &[RecordId],
    ) -> Result<Vec<Row>, sqlx::Error> {
        let ids: Vec<_> = ids.iter().map(|id| format!("X'{id}'")).collect();
        let sql = sql
            .as_str()
            .replace("id = ?1", &format!("id IN ({})", ids.join(",")));
        let asked_at = Instant::now();
        let ask = sqlx::query(AssertSqlSafe(sql)).persistent(false);
        let rows = ask.fetch_all(conn).await?;
        rows.iter().map(|row| from_row(row, asked_at)).collect()
    }

    /// Takes the writer's place for a moment, without waiting for it.
    async fn at_it(
        conn: &mut SqliteConnection,
        _sql: &SqlStr,
        _id: RecordId,
        inside: bool,
    ) -> Result<Option<AtIt>, sqlx::Error> {
        if inside {
            return Ok(None);
        }
        let patience: i64 = sqlx::query_scalar("PRAGMA busy_timeout")
            .fetch_one(&mut *conn)
            .await?;
        sqlx::raw_sql("PRAGMA busy_timeout = 0")
            .execute(&mut *conn)
            .await?;
        let taken = sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut *conn).await;
        if taken.is_ok() {
            sqlx::raw_sql("ROLLBACK").execute(&mut *conn).await?;
        }
        let patience = format!("PRAGMA busy_timeout = {patience}");
        sqlx::raw_sql(AssertSqlSafe(patience))
            .execute(&mut *conn)
            .await?;
        match taken {
            Ok(_) => Ok(None),
            Err(error) if is_busy(&error) => Ok(Some(AtIt::default())),
            Err(error) => Err(error),
        }
    }
}

fn is_busy(error: &sqlx::Error) -> bool {
    let error = error.as_database_error();
    error.is_some_and(was_given_up::<Sqlite>)
}
