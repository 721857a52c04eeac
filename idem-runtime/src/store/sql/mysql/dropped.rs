//! A transaction that was dropped midway: its connection goes back to the pool only if it can be used.
//!
//! After a statement that was dropped while it was being prepared, the driver waits for packets that
//! never come. The pool's own test waits with it and keeps the place for good: a few calls that are
//! dropped would take a pool down.

use std::mem;
use std::time::Duration;

use sqlx::mysql::MySql;
use sqlx::{Connection as _, MySqlConnection, Pool, Transaction};

/// How long the answer of a statement that was dropped is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two tries to connect.
const PAUSE: Duration = Duration::from_millis(500);

/// Ends the transaction. Its connection goes back if it still answers in turn; else it is closed.
pub(super) async fn give_up(mut tx: Transaction<'static, MySql>, pool: Pool<MySql>) {
    if answers(&mut tx).await {
        return;
    }
    let Some(mut other) = connect(&pool).await else {
        return;
    };
    // A transaction does not give its connection away, but lets it be exchanged. The old one is
    // closed, and the server rolls back.
    mem::swap(&mut *tx, &mut other);
    drop(other);
    // The pool has not set this session up and must not lend it: its test finds it closed, and frees
    // the place.
    let _ = sqlx::raw_sql("KILL CONNECTION_ID()")
        .execute(&mut *tx)
        .await;
}

async fn answers(conn: &mut MySqlConnection) -> bool {
    let answer = tokio::time::timeout(PATIENCE, conn.ping()).await;
    matches!(answer, Ok(Ok(())))
}

/// `None`: nobody uses the pool any more.
async fn connect(pool: &Pool<MySql>) -> Option<MySqlConnection> {
    while !pool.is_closed() {
        match MySqlConnection::connect_with(&pool.connect_options()).await {
            Ok(conn) => return Some(conn),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    None
}
