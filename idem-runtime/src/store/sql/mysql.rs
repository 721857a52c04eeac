//! MySQL (8.0) and MariaDB (10.6), both InnoDB.
//!
//! The reserving statement is a plain `INSERT` that does not queue behind another transaction: a
//! duplicate of a running call learns so at once (MariaDB) or within about a second (MySQL, whose
//! shortest lock wait that is), its own transaction intact. Nobody queues, so a first call that rolls
//! back leaves no deadlock among those that wait for it. Where the key is taken, a *locking* read
//! follows: under `REPEATABLE READ` a plain one would not see what was committed after the snapshot.
//! Who owns a row is never told by a count of affected rows, so it does not matter whether the
//! connection counts rows found or rows changed.
//!
//! # When the transaction is gone
//! A deadlock (1213) and a changed record under `innodb_snapshot_isolation` (1020) end the **whole**
//! transaction in the server, and every later statement would commit by itself. Both are
//! [`ErrorKind::RetryTransaction`]; roll back and send nothing else. On MariaDB every statement of the
//! framework that writes is bound to an open transaction (`@@in_transaction`), so that after a
//! deadlock, a `COMMIT`, or a statement that commits implicitly (`CREATE TABLE`) it changes nothing and
//! the call is [`ErrorKind::TransactionEnded`]. MySQL has no such variable.
//!
//! # A reservation without an outcome
//! There are no deferred constraints here: a caller who drops a call midway and commits all the same
//! leaves an unfinished row. It is reported as [`ErrorKind::Abandoned`] and never run again by itself;
//! [`Records::forget`] removes it once somebody has found out whether the effect happened.
//!
//! # Cancel safety
//! sqlx 0.9's driver cannot go on after a statement whose future was dropped while it was being sent
//! or prepared: the next use of the connection fails or never ends. A transaction of the framework's own
//! closes such a connection when it is dropped. Where a call in the caller's transaction can be dropped,
//! run the whole transaction in a task of its own.
//!
//! # What is tested
//! MariaDB 10.11. What differs on MySQL 8 (the session's lock wait, set and restored around the two
//! reserving statements) has run against MariaDB only.
//!
//! See `docs/protocol.md`.

mod codes;
mod dropped;
mod reserve;
pub(crate) mod setup;
mod turn;
mod watched;

use std::borrow::Cow;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sqlx::error::DatabaseError;
use sqlx::mysql::{MySql, MySqlDatabaseError, MySqlRow};
use sqlx::{AssertSqlSafe, MySqlConnection, Pool, Row as _, SqlStr, Transaction};

use super::cause::Meaning;
use super::dialect::{
    Dialect, ENDS, Inserted, NewRow, Row, Statements, TimeLeft, Times, sealed::Sealed,
    tombstone_hex,
};
#[cfg(doc)]
use super::handle::Records;
use super::schema::statement;
use crate::clock::Moment;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;
use crate::protocol::Owner;
use crate::store::Until;

use reserve::{insert, reserve, rolls_back_on_timeout};
#[cfg(feature = "testing")]
pub use setup::as_on_mysql;
pub use setup::{check, migrate, migrations};
use turn::Turn;

impl Sealed for MySql {}

/// `/*M! … */` is read by MariaDB and is a comment to MySQL.
const READ: &str = "SELECT fingerprint, owner, outcome, \
     TIMESTAMPDIFF(MICROSECOND, '1970-01-01', completed_at) DIV 1000, \
     TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(3), expires_at), \
     TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(3), known_until) FROM {table} WHERE id = ?";

impl Dialect for MySql {
    const INDEX: usize = 2;
    const REFUSES_HALF_DONE: bool = false;
    const SURVIVES_A_DROP: bool = false;

    fn statements(table: &str) -> Statements {
        let sql = |template: &str| statement(&template.replace("{ends}", ENDS), table);
        // Outside a transaction the moment is NULL, which the column refuses (1048).
        let insert = |wait: &str| {
            sql(&format!(
                "/*M! SET STATEMENT innodb_lock_wait_timeout={wait} FOR */ \
                 INSERT INTO {{table}} (scope, key_text, fingerprint, owner, id, created_at) \
                 VALUES (?, ?, ?, ?, ?, \
                 /*M! IF(@@in_transaction, */ UTC_TIMESTAMP(3) /*M! , NULL) */)"
            ))
        };
        // Each of two duplicates holds the row shared: without any wait both would be refused for
        // as long as both transactions live. With one, the server ends one of them (1213).
        // By the index on the expiry it would lock the rows beside it.
        let take_over = sql("/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ \
             UPDATE {table} FORCE INDEX (PRIMARY) SET scope = ?, key_text = ?, fingerprint = ?, owner = ?, \
             outcome = NULL, created_at = UTC_TIMESTAMP(3), completed_at = NULL, \
             expires_at = NULL, known_until = NULL \
             WHERE id = ? AND {ends} <= UTC_TIMESTAMP(3) \
             /*M! AND @@in_transaction = 1 */");
        let status = sql(&READ.replacen(
            " FROM",
            ", TIMESTAMPDIFF(MICROSECOND, '1970-01-01', created_at) DIV 1000, \
             /*M! @@tx_isolation */ /*!80000 @@transaction_isolation */ = 'READ-UNCOMMITTED' FROM",
            1,
        ));
        Statements {
            insert: insert("0"),
            insert_blocking: insert("1"),
            // The insert that found the row has locked it for us, so this neither waits nor locks a gap.
            read: sql(&format!("{READ} LOCK IN SHARE MODE")),
            peek: sql(READ),
            holder: status.clone(),
            status,
            take_over_blocking: take_over.clone(),
            take_over,
            complete: sql(
                "UPDATE {table} SET outcome = ?, completed_at = UTC_TIMESTAMP(3), \
                 expires_at = UTC_TIMESTAMP(3) + INTERVAL ? MICROSECOND, \
                 known_until = UTC_TIMESTAMP(3) + INTERVAL ? MICROSECOND \
                 WHERE id = ? AND owner = ? AND outcome IS NULL \
                 /*M! AND @@in_transaction = 1 */",
            ),
            release: sql(
                "DELETE FROM {table} WHERE id = ? AND owner = ? AND outcome IS NULL \
                 /*M! AND @@in_transaction = 1 */",
            ),
            // An unfinished row too: its call was committed midway, or is waited for.
            // One whose time is over counts as absent already, purged or not.
            // Whoever replayed the call in an open transaction has it locked: that is not waited for.
            forget: sql("/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ \
                 DELETE FROM {table} WHERE id = ? \
                 AND COALESCE({ends} > UTC_TIMESTAMP(3), true)"),
            // Both in one packet: the level must not be left to somebody else's transaction. Under
            // REPEATABLE READ the gaps in the index would hold up calls that reserve or complete, and a
            // small table would be scanned from the wrong end, into rows that are held.
            purge: sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                 DELETE gone FROM (SELECT id FROM {table} FORCE INDEX (expires_at) \
                 WHERE expires_at <= UTC_TIMESTAMP(3) AND outcome IS NOT NULL \
                 AND {ends} <= UTC_TIMESTAMP(3) LIMIT {limit} FOR UPDATE SKIP LOCKED) AS past \
                 STRAIGHT_JOIN {table} AS gone FORCE INDEX (PRIMARY) ON gone.id = past.id"),
            // As the purge. What is read is not written: the server assigns in any order.
            bury: sql(&format!(
                "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                 UPDATE (SELECT id FROM {{table}} FORCE INDEX (expires_at) \
                 WHERE expires_at <= UTC_TIMESTAMP(3) AND outcome IS NOT NULL \
                 AND known_until > UTC_TIMESTAMP(3) LIMIT {{limit}} FOR UPDATE SKIP LOCKED) AS past \
                 STRAIGHT_JOIN {{table}} AS kept FORCE INDEX (PRIMARY) ON kept.id = past.id \
                 SET kept.outcome = X'{}', kept.expires_at = kept.known_until",
                tombstone_hex(),
            )),
            wait: String::new(),
            wait_is_scoped: OnceLock::new(),
        }
    }

    async fn insert(
        conn: &mut MySqlConnection,
        statements: &Statements,
        row: NewRow<'_>,
    ) -> Result<Inserted, sqlx::Error> {
        insert(conn, statements, &statements.insert, row).await
    }

    /// A second in the server, which sees a circle at once and ends one of its transactions (1213).
    /// When the first call rolls back, all but one of those that wait in the server are ended too:
    /// so of one process only one waits there at a time, by turns.
    async fn insert_waiting(
        conn: &mut MySqlConnection,
        statements: &Statements,
        row: NewRow<'_>,
        _left: Duration,
    ) -> Result<Option<Inserted>, sqlx::Error> {
        let turn = Turn::take(row.id);
        let sql = match turn {
            Some(_) => &statements.insert_blocking,
            None => &statements.insert,
        };
        insert(conn, statements, sql, row).await.map(Some)
    }

    async fn read(
        conn: &mut MySqlConnection,
        sql: &SqlStr,
        id: RecordId,
    ) -> Result<Option<Row>, sqlx::Error> {
        let asked_at = Instant::now();
        sqlx::query(sql.clone())
            .bind(id.as_bytes().as_slice())
            .fetch_optional(conn)
            .await?
            .map(|row| from_row(&row, asked_at))
            .transpose()
    }

    // Both in one packet: the level must not be left to somebody else's transaction. A packet of
    // several statements takes no arguments; the id is sixteen bytes of our own.
    async fn peek(
        conn: &mut MySqlConnection,
        statements: &Statements,
        id: RecordId,
    ) -> Result<Option<Row>, sqlx::Error> {
        let peek = statements.peek.as_str().replace('?', &format!("X'{id}'"));
        let committed = format!("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; {peek}");
        let asked_at = Instant::now();
        sqlx::raw_sql(AssertSqlSafe(committed))
            .fetch_optional(conn)
            .await?
            .map(|row| from_row(&row, asked_at))
            .transpose()
    }

    async fn take_over(
        conn: &mut MySqlConnection,
        statements: &Statements,
        row: NewRow<'_>,
    ) -> Result<bool, sqlx::Error> {
        // The owner is a new one: a row found is a row changed.
        let done = reserve(conn, statements, &statements.take_over, row).await?;
        Ok(done.is_some_and(|done| done.rows_affected() == 1))
    }

    async fn complete(
        conn: &mut MySqlConnection,
        statements: &Statements,
        id: RecordId,
        owner: Owner,
        outcome: &[u8],
        times: Times,
    ) -> Result<u64, sqlx::Error> {
        let micros = |millis: i64| millis.saturating_mul(1000);
        sqlx::query(statements.complete.clone())
            .bind(outcome)
            .bind(times.keep.map(micros))
            .bind(times.known.map(micros))
            .bind(id.as_bytes().as_slice())
            .bind(owner.as_bytes().as_slice())
            .execute(conn)
            .await
            .map(|done| done.rows_affected())
    }

    async fn release(
        conn: &mut MySqlConnection,
        statements: &Statements,
        id: RecordId,
        owner: Owner,
    ) -> Result<u64, sqlx::Error> {
        sqlx::query(statements.release.clone())
            .bind(id.as_bytes().as_slice())
            .bind(owner.as_bytes().as_slice())
            .execute(conn)
            .await
            .map(|done| done.rows_affected())
    }

    fn is_held(error: &sqlx::Error) -> bool {
        matches!(number(error), Some(LOCK_WAIT | LOCK_NOWAIT))
    }

    async fn savepoint(conn: &mut MySqlConnection, sql: &'static str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(sql).execute(conn).await.map(|_| ())
    }

    async fn forget(
        conn: &mut MySqlConnection,
        statements: &Statements,
        id: RecordId,
    ) -> Result<u64, sqlx::Error> {
        let forget = sqlx::query(statements.forget.clone()).bind(id.as_bytes().as_slice());
        let done = forget.execute(&mut *conn).await;
        if done.as_ref().is_err_and(Self::is_held) && rolls_back_on_timeout(conn).await? {
            let ended = "the lock wait ended, and the transaction with it";
            return Err(sqlx::Error::Protocol(ended.into()));
        }
        done.map(|done| done.rows_affected())
    }

    async fn purge(
        conn: &mut MySqlConnection,
        statements: &Statements,
        limit: i64,
    ) -> Result<u64, sqlx::Error> {
        limited(conn, &statements.purge, limit).await
    }

    async fn bury(
        conn: &mut MySqlConnection,
        statements: &Statements,
        limit: i64,
    ) -> Result<u64, sqlx::Error> {
        limited(conn, &statements.bury, limit).await
    }

    async fn begin_with(
        pool: &Pool<Self>,
        statement: Option<SqlStr>,
    ) -> Result<Transaction<'static, Self>, sqlx::Error> {
        Transaction::begin(pool.acquire().await?, statement).await
    }

    async fn looks_elsewhere(
        conn: &mut MySqlConnection,
        pool: &Pool<Self>,
    ) -> Result<bool, sqlx::Error> {
        let used: Option<String> = sqlx::query_scalar("SELECT DATABASE()")
            .fetch_one(conn)
            .await?;
        Ok(used.as_deref() != pool.connect_options().get_database())
    }

    async fn give_up(tx: Transaction<'static, Self>, pool: Pool<Self>) {
        dropped::give_up(tx, pool).await;
    }

    // A deadlock ends the transaction, and what follows it commits by itself. Only MariaDB tells.
    async fn is_alive(conn: &mut MySqlConnection) -> Result<bool, sqlx::Error> {
        let alive = "SELECT 1 FROM DUAL WHERE 1 = 1 /*M! AND @@in_transaction = 1 */";
        let row = sqlx::query(alive).fetch_optional(conn).await?;
        Ok(row.is_some())
    }

    /// The number: the SQL state of a time-out is that of any other error.
    fn code(error: &dyn DatabaseError) -> Option<Cow<'_, str>> {
        let error = error.try_downcast_ref::<MySqlDatabaseError>()?;
        Some(Cow::Owned(error.number().to_string()))
    }

    const CODE: &'static str = "error";

    fn meaning(code: &str) -> Meaning {
        codes::meaning(code)
    }

    fn refuses_commit(code: &str) -> bool {
        codes::refuses_commit(code)
    }
}

pub(crate) const DUPLICATE: u16 = 1062;
const LOCK_WAIT: u16 = 1205;
/// MySQL's answer to `NOWAIT`.
const LOCK_NOWAIT: u16 = 3572;

pub(crate) fn number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?;
    let error = error.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(error.number())
}

async fn limited(conn: &mut MySqlConnection, sql: &SqlStr, limit: i64) -> Result<u64, sqlx::Error> {
    let sql = sql.as_str().replace("{limit}", &limit.to_string());
    let run = sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await;
    run.map(|done| done.rows_affected())
}

fn from_row(row: &MySqlRow, asked_at: Instant) -> Result<Row, sqlx::Error> {
    fn sized<const N: usize>(bytes: &[u8]) -> Result<[u8; N], sqlx::Error> {
        bytes
            .try_into()
            .map_err(|e| sqlx::Error::Decode(Box::new(e)))
    }
    let outcome: Option<&[u8]> = row.try_get(2)?;
    let completed_at: Option<i64> = row.try_get(3)?;
    let time = TimeLeft {
        outcome: row.try_get(4)?,
        key: row.try_get(5)?,
    };
    let owner = Owner::from_bytes(sized(row.try_get(1)?)?);
    Ok(Row {
        fingerprint: Fingerprint::from_bytes(sized(row.try_get(0)?)?),
        owner,
        outcome: outcome.map(Bytes::copy_from_slice),
        recorded_at: completed_at.map(|at| Moment::from_millis(u64::try_from(at).unwrap_or(0))),
        is_over: time.is_over(),
        is_gone: time.is_gone(outcome),
        until: Until::left_micros(asked_at, time.outcome),
        ends: Until::left_micros(asked_at, time.ends()),
        // There is no telling a row of this very transaction from one committed before it, but rows
        // of other processes are committed.
        committed: !owner.is_of_this_process(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn my_05_nothing_is_ignored_and_no_count_decides() {
        let sql = MySql::statements("idem_record");
        assert!(!sql.insert.as_str().contains("IGNORE"));
        assert!(!sql.insert.as_str().contains("DUPLICATE"));
    }
}
