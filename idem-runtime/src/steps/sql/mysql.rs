use bytes::Bytes;
use sqlx::mysql::MySql;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, Pool, Row as _, SqlStr};

use super::texts::{Places, Texts, Words, steps};
use super::{Change, Held, NewOwner, NewSaga, SagaDialect, statements};
use crate::error::Error;
use crate::key::RecordId;
use crate::steps::state::{Rest, SagaRow, SagaState, StepRow, StepState};
use crate::store::sql::Migration;
use crate::store::sql::classify;
use crate::store::sql::mysql::setup::{check_kind, lock, version};
use crate::store::sql::schema::{fill, statement, unusable};

const WORDS: Words = Words {
    now: "UTC_TIMESTAMP(6)",
    after: "UTC_TIMESTAMP(6) + INTERVAL ({} * 1000) MICROSECOND",
    left: "(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), due_at) + 999) DIV 1000",
    first_fence: "0",
    next_fence: "fence + 1",
    fence: "(serial * 1048576 + fence)",
    // Not IGNORE, which would also cut what does not fit.
    or_nothing: "ON DUPLICATE KEY UPDATE id = id",
    lock: "FOR UPDATE SKIP LOCKED",
    // After a deadlock each statement would commit by itself: MariaDB can tell.
    alive: "/*M! AND @@in_transaction = 1 */",
    purge: "DELETE FROM {table} WHERE \
        ended_at <= UTC_TIMESTAMP(6) - INTERVAL ($1 * 1000) MICROSECOND ORDER BY ended_at LIMIT $2",
    places: Places::Marked,
};

impl SagaDialect for MySql {
    const ONE_WRITER: bool = false;
    const DROPPABLE: bool = false;
    const MARK: Option<&'static str> = None;
    const UNMARK: Option<&'static str> = None;

    fn saga_texts(table: &str) -> Texts {
        WORDS.texts(table)
    }

    fn saga_migrations(table: &str) -> Vec<Migration> {
        let sql = include_str!("migrations/mysql_0001_saga.sql");
        vec![Migration {
            version: 1,
            name: "saga",
            sql: fill(&sql.replace("{steps}", &steps(table)), table),
        }]
    }

    async fn migrate_sagas(pool: &Pool<Self>, table: &str) -> Result<(), Error> {
        let conn = pool.acquire().await.map_err(classify::<Self>)?;
        // Out of the pool: the lock ends with the connection, whatever becomes of this future.
        let mut conn = conn.detach();
        lock(&mut conn, table).await?;
        let done = upgrade(&mut conn, table).await;
        // The schema stands; a connection that does not close in good order is closed by its drop.
        let _ = conn.close().await;
        done.map_err(|error| classify::<Self>(error).detail("the schema could not be created"))
    }

    async fn check_sagas(pool: &Pool<Self>, table: &str) -> Result<(), Error> {
        let mut conn = pool.acquire().await.map_err(classify::<Self>)?;
        let at = version(&mut conn, table).await.map_err(classify::<Self>)?;
        let want = Self::saga_migrations(table)
            .last()
            .map_or(0, |step| step.version);
        if at != i64::from(want) {
            return Err(unusable(format!(
                "{table} is at version {at}, this build needs {want}"
            )));
        }
        check_kind(&mut conn, table, "id").await?;
        let (texts, id) = (Self::saga_texts(table), RecordId::from_bytes([0; 16]));
        let read = Self::read_saga(&mut conn, &texts, id, false).await;
        read.map_err(classify::<Self>)?;
        let read = Self::read_steps(&mut conn, &texts, id).await;
        read.map(drop).map_err(classify::<Self>)
    }

    statements!(|id: [u8; 16]| id.to_vec(), Vec<u8>, Vec::as_slice);
}

async fn upgrade(conn: &mut MySqlConnection, table: &str) -> Result<(), sqlx::Error> {
    let versions = "CREATE TABLE IF NOT EXISTS {versions} (version INT NOT NULL PRIMARY KEY, \
                    applied_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)) ENGINE = InnoDB";
    sqlx::raw_sql(statement(versions, table))
        .execute(&mut *conn)
        .await?;
    let at = version(conn, table).await?;
    let steps = MySql::saga_migrations(table).into_iter();
    for step in steps.filter(|step| i64::from(step.version) > at) {
        sqlx::raw_sql(AssertSqlSafe(step.sql))
            .execute(&mut *conn)
            .await?;
        let note = statement("INSERT INTO {versions} (version) VALUES (?)", table);
        sqlx::query(note)
            .bind(step.version)
            .execute(&mut *conn)
            .await?;
    }
    Ok(())
}
