use sqlx::mysql::MySql;
use sqlx::{AssertSqlSafe, MySqlConnection, SqlStr};

use super::{Found, Mark, Texts, TokenDialect, sized};
use crate::key::RecordId;
use crate::store::sql::mysql::{DUPLICATE, number};
use crate::store::sql::schema::{Shape, Step, Table, statement};

/// Milliseconds since 1970, by the server's clock when the statement began, in no time zone.
const NOW: &str = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)";

const STATE: &str = "SELECT binding, used_at IS NOT NULL, expires_at <= {now} \
                     FROM {table} WHERE id = ?";

impl TokenDialect for MySql {
    fn texts(table: &str) -> Texts {
        let sql = |template: &str| statement(&template.replace("{now}", NOW), table);
        Texts {
            // Waits for a transaction that has inserted the same mark; if that commits, 1062.
            mark: sql("INSERT INTO {table} (id, binding, expires_at, used_at) \
                 SELECT ?, ?, ?, {now} FROM DUAL WHERE ? > {now}"),
            unmark: sql("DELETE FROM {table} WHERE id = ?"),
            mark_state: sql("SELECT EXISTS (SELECT 1 FROM {table} WHERE id = ?), ? <= {now}"),
            issue: sql("INSERT INTO {table} (id, binding, expires_at) VALUES (?, ?, {now} + ?)"),
            // Of the row as it is now, not as the transaction's snapshot has it. By the index on the
            // expiry it would lock the rows beside it.
            take: sql(
                "UPDATE {table} FORCE INDEX (PRIMARY) SET used_at = {now} WHERE id = ? \
                 AND binding = ? AND used_at IS NULL AND expires_at > {now}",
            ),
            untake: sql("UPDATE {table} SET used_at = NULL WHERE id = ?"),
            withdraw: sql("DELETE FROM {table} WHERE id = ? AND used_at IS NULL"),
            state: sql(STATE),
            state_now: sql(&format!("{STATE} LOCK IN SHARE MODE")),
            // As that of records: both in one packet, and no gap is locked.
            purge: sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                 DELETE gone FROM (SELECT id FROM {table} FORCE INDEX (expires_at) \
                 WHERE expires_at <= {now} - 3600000 \
                 LIMIT {limit} FOR UPDATE SKIP LOCKED) AS past \
                 STRAIGHT_JOIN {table} AS gone FORCE INDEX (PRIMARY) ON gone.id = past.id"),
        }
    }

    fn shape() -> &'static Shape {
        &TOKEN
    }

    async fn mark(
        conn: &mut MySqlConnection,
        sql: &SqlStr,
        id: RecordId,
        binding: &[u8; 16],
        millis: i64,
    ) -> Result<Mark, sqlx::Error> {
        let mark = sqlx::query(sql.clone())
            .bind(id.as_bytes().as_slice())
            .bind(binding.as_slice())
            .bind(millis)
            .bind(millis);
        match mark.execute(conn).await {
            Ok(done) if done.rows_affected() == 1 => Ok(Mark::Made),
            Ok(_) => Ok(Mark::NotMade),
            // Rolls the statement back and nothing else.
            Err(error) if number(&error) == Some(DUPLICATE) => Ok(Mark::Found),
            Err(error) => Err(error),
        }
    }

    async fn issue(
        conn: &mut MySqlConnection,
        sql: &SqlStr,
        id: RecordId,
        binding: &[u8; 16],
        millis: i64,
    ) -> Result<(), sqlx::Error> {
        let issue = sqlx::query(sql.clone())
            .bind(id.as_bytes().as_slice())
            .bind(binding.as_slice())
            .bind(millis);
        issue.execute(conn).await.map(drop)
    }

    async fn mark_state(
        conn: &mut MySqlConnection,
        sql: &SqlStr,
        id: RecordId,
        expires: i64,
    ) -> Result<(bool, bool), sqlx::Error> {
        let read = sqlx::query_as(sql.clone()).bind(id.as_bytes().as_slice());
        read.bind(expires).fetch_one(conn).await
    }

    async fn take(
        conn: &mut MySqlConnection,
        sql: &SqlStr,
        id: RecordId,
        binding: &[u8; 16],
    ) -> Result<u64, sqlx::Error> {
        let take = sqlx::query(sql.clone())
            .bind(id.as_bytes().as_slice())
            .bind(binding.as_slice());
        // A row that is found is changed: it was not used.
        take.execute(conn).await.map(|done| done.rows_affected())
    }

    async fn undo(
        conn: &mut MySqlConnection,
        sql: &SqlStr,
        id: RecordId,
    ) -> Result<u64, sqlx::Error> {
        let undo = sqlx::query(sql.clone()).bind(id.as_bytes().as_slice());
        undo.execute(conn).await.map(|done| done.rows_affected())
    }

    async fn state(
        conn: &mut MySqlConnection,
        sql: &SqlStr,
        id: RecordId,
    ) -> Result<Option<Found>, sqlx::Error> {
        let read = sqlx::query_as(sql.clone()).bind(id.as_bytes().as_slice());
        let row: Option<(Vec<u8>, bool, bool)> = read.fetch_optional(conn).await?;
        let found = row.map(|(binding, used, expired)| {
            let binding = sized(&binding)?;
            Ok(Found {
                binding,
                used,
                expired,
            })
        });
        found.transpose()
    }

    /// Two statements in one packet cannot be prepared: the number goes into the text.
    async fn purge_tokens(
        conn: &mut MySqlConnection,
        sql: &SqlStr,
        limit: i64,
    ) -> Result<u64, sqlx::Error> {
        let purge = sql.as_str().replace("{limit}", &limit.to_string());
        let purge = sqlx::raw_sql(AssertSqlSafe(purge));
        purge.execute(conn).await.map(|done| done.rows_affected())
    }
}

static TOKEN: Shape = Shape {
    steps: &[Step {
        version: 1,
        serves_from: 1,
        name: "token",
        sql: include_str!("migrations/mysql_0001_token.sql"),
    }],
    tables: &[Table {
        name: "{table}",
        columns: &[
            ("id", "binary(16)"),
            ("binding", "binary(16)"),
            ("expires_at", "bigint"),
            ("used_at", "bigint"),
        ],
        key: "id",
        rights: "SELECT,INSERT,UPDATE,DELETE",
    }],
    promises: &[],
};
