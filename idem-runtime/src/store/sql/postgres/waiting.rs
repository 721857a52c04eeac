//! A duplicate that has asked for a while waits in the database, since only there are circles found:
//! two transactions that each want what the other one holds, a key or a row.
//!
//! The wait is one packet that leaves nothing behind. The lock is waited for in shared mode, so that
//! nobody queues behind another waiting duplicate, within a subtransaction of a `DO` block, which is
//! always rolled back: what comes of it, lock, time-out or deadlock, the transaction is as it was. So
//! it is when the caller is dropped meanwhile; its next statement waits until the packet is done.

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use super::super::dialect::Statements;
use super::super::schema::fill;
use crate::key::RecordId;

/// Whether the `DO` block can run: a server may lack the language, or the role the right to it.
const HAS_LANGUAGE: &str = "SELECT COALESCE((SELECT has_language_privilege(oid, 'USAGE') \
     FROM pg_language WHERE lanname = 'plpgsql'), false)";

/// The session's own `statement_timeout` counts for its statements, not for a wait whose end is set
/// here. The server looks for a deadlock once in each wait, after `deadlock_timeout`.
const WAIT: &str = "SELECT set_config('idem.circle', '', true), \
     set_config('idem.statement_timeout', current_setting('statement_timeout'), true), \
     set_config('statement_timeout', '0', true); \
     DO $idem$ BEGIN BEGIN \
     PERFORM set_config('lock_timeout', greatest(1, least({left}, 500 + round(1000 * \
     extract(epoch FROM current_setting('deadlock_timeout')::interval))))::int8::text, true); \
     PERFORM pg_advisory_xact_lock_shared({number} # '{table}'::regclass::oid::int8); \
     RAISE EXCEPTION USING ERRCODE = 'IDEM0'; \
     EXCEPTION WHEN lock_not_available OR SQLSTATE 'IDEM0' THEN NULL; \
     WHEN deadlock_detected THEN PERFORM set_config('idem.circle', 'found', true); \
     END; END $idem$; \
     SELECT current_setting('idem.circle'), \
     set_config('statement_timeout', current_setting('idem.statement_timeout'), true)";

/// The packet for records of this table.
pub(super) fn text(table: &str) -> String {
    fill(WAIT, table)
}

/// Waits until nobody holds the record any more, for a little longer than it takes the server to find
/// a deadlock, and for `left` at most. Tells whether the holder waits for this transaction.
pub(super) async fn is_circle(
    conn: &mut PgConnection,
    statements: &Statements,
    id: RecordId,
    left: Duration,
) -> Result<bool, sqlx::Error> {
    let has_language: bool = sqlx::query_scalar(HAS_LANGUAGE)
        .fetch_one(&mut *conn)
        .await?;
    if !has_language {
        return Ok(false);
    }
    let wait = statements
        .wait
        .replace("{left}", &left.as_millis().to_string())
        .replace("{number}", &format!("({}::int8)", id.lock_number()));
    let answers = sqlx::raw_sql(AssertSqlSafe(wait)).fetch_all(conn).await?;
    let found = answers.last().map(|row| row.try_get::<&str, _>(0));
    Ok(found.transpose()? == Some("found"))
}
