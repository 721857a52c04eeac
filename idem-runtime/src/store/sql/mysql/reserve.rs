//! The reserving statements, and how long they wait.

use sqlx::mysql::MySqlQueryResult;
use sqlx::{Executor as _, MySqlConnection, SqlStr};

use super::{DUPLICATE, LOCK_WAIT, number};
use crate::store::sql::dialect::{Inserted, NewRow, Statements};

pub(super) async fn insert(
    conn: &mut MySqlConnection,
    statements: &Statements,
    sql: &SqlStr,
    row: NewRow<'_>,
) -> Result<Inserted, sqlx::Error> {
    match reserve(conn, statements, sql, row).await {
        Ok(Some(_)) => Ok(Inserted::Ours),
        Ok(None) => Ok(Inserted::Held),
        // Rolls the statement back and nothing else, and leaves the row locked for reading.
        Err(error) if number(&error) == Some(DUPLICATE) => Ok(Inserted::Taken),
        Err(error) => Err(error),
    }
}

/// Runs a reserving statement with its short lock wait. `None`: another transaction holds the row,
/// and this one is as it was.
pub(super) async fn reserve(
    conn: &mut MySqlConnection,
    statements: &Statements,
    sql: &SqlStr,
    row: NewRow<'_>,
) -> Result<Option<MySqlQueryResult>, sqlx::Error> {
    let scoped = wait_is_scoped(conn, statements).await?;
    if !scoped {
        conn.execute(SHORTEN_WAIT).await?;
    }
    let done = sqlx::query(sql.clone())
        .bind(row.scope)
        .bind(row.key_text)
        .bind(row.fingerprint.as_bytes().as_slice())
        .bind(row.owner.as_bytes().as_slice())
        .bind(row.id.as_bytes().as_slice())
        .execute(&mut *conn)
        .await;
    if !scoped {
        // It reads and writes no table: it is no work in the transaction, nor out of one.
        let restored = conn.execute(RESTORE_WAIT).await;
        if done.is_ok() {
            restored?;
        }
    }
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) if number(&error) == Some(LOCK_WAIT) => {
            if rolls_back_on_timeout(conn).await? {
                return Err(error);
            }
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// One second is the least that MySQL takes. A value that a dropped call has left behind is the one
/// that is restored later.
const SHORTEN_WAIT: &str = "SET @idem_wait = COALESCE(@idem_wait, \
     @@SESSION.innodb_lock_wait_timeout), SESSION innodb_lock_wait_timeout = 1";
const RESTORE_WAIT: &str = "SET SESSION innodb_lock_wait_timeout = CAST(@idem_wait AS UNSIGNED), \
     @idem_wait = NULL";

/// Whether this is MariaDB: asked once for a table. A process that talks to servers of both kinds
/// through one `Records` only waits longer than it must, or sends two statements more.
async fn wait_is_scoped(
    conn: &mut MySqlConnection,
    statements: &Statements,
) -> Result<bool, sqlx::Error> {
    if let Some(scoped) = statements.wait_is_scoped.get() {
        return Ok(*scoped);
    }
    let version: String = sqlx::query_scalar("SELECT VERSION()")
        .fetch_one(conn)
        .await?;
    let scoped = version.contains("MariaDB");
    Ok(*statements.wait_is_scoped.get_or_init(|| scoped))
}

/// Whether a time-out has ended the whole transaction, so that the next statement would commit by
/// itself. Asked each time: it is one statement on the contended path, and a second run if it is
/// missed.
pub(super) async fn rolls_back_on_timeout(conn: &mut MySqlConnection) -> Result<bool, sqlx::Error> {
    let ask = sqlx::query_scalar::<_, i64>("SELECT CAST(@@innodb_rollback_on_timeout AS SIGNED)");
    ask.fetch_one(conn).await.map(|on| on != 0)
}
