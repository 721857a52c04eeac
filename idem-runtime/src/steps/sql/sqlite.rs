use bytes::Bytes;
use sqlx::sqlite::Sqlite;
use sqlx::{Pool, Row as _, SqlStr};

use super::texts::{Places, Texts, Words, steps};
use super::{Change, Held, NewOwner, NewSaga, SagaDialect, statements};
use crate::error::Error;
use crate::key::RecordId;
use crate::steps::state::{Rest, SagaRow, SagaState, StepRow, StepState};
use crate::store::sql::Migration;
use crate::store::sql::classify;
use crate::store::sql::schema::{fill, unusable};
use crate::store::sql::sqlite::setup::{apply, check_table};

const WORDS: Words = Words {
    now: "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
    after: "CAST(unixepoch('subsec') * 1000 AS INTEGER) + {}",
    left: "due_at - CAST(unixepoch('subsec') * 1000 AS INTEGER)",
    first_fence: "(SELECT floor + 1 FROM {fences})",
    next_fence: "fence + 1",
    fence: "fence",
    or_nothing: "ON CONFLICT DO NOTHING",
    // The transaction is the only one that writes.
    lock: "",
    alive: "",
    purge: "DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE \
        ended_at <= CAST(unixepoch('subsec') * 1000 AS INTEGER) - $1 LIMIT $2)",
    places: Places::Numbered,
};

impl SagaDialect for Sqlite {
    const ONE_WRITER: bool = true;
    const DROPPABLE: bool = true;
    const MARK: Option<&'static str> = Some("SAVEPOINT idem_step");
    const UNMARK: Option<&'static str> = Some("RELEASE idem_step");

    fn saga_texts(table: &str) -> Texts {
        WORDS.texts(table)
    }

    fn saga_migrations(table: &str) -> Vec<Migration> {
        let sql = include_str!("migrations/sqlite_0001_saga.sql")
            .replace("{steps}", &steps(table))
            .replace("{due_index}", &format!("{table}_due_at"))
            .replace("{ended_index}", &format!("{table}_ended_at"));
        vec![Migration {
            version: 1,
            name: "saga",
            sql: fill(&sql, table),
        }]
    }

    async fn migrate_sagas(pool: &Pool<Self>, table: &str) -> Result<(), Error> {
        apply(pool, table, Self::saga_migrations(table)).await
    }

    async fn check_sagas(pool: &Pool<Self>, table: &str) -> Result<(), Error> {
        let mut conn = pool.acquire().await.map_err(classify::<Self>)?;
        check_table(&mut conn, table, &Self::saga_migrations(table), COLUMNS).await?;
        let enforced: i64 = sqlx::query_scalar("SELECT foreign_keys FROM pragma_foreign_keys")
            .fetch_one(&mut *conn)
            .await
            .map_err(classify::<Self>)?;
        if enforced == 0 {
            return Err(unusable(
                "foreign keys are not enforced (PRAGMA foreign_keys): the steps of a saga that is \
                 removed would be taken for those of the next one with its key",
            ));
        }
        let texts = Self::saga_texts(table);
        let read = Self::read_steps(&mut conn, &texts, RecordId::from_bytes([0; 16])).await;
        read.map(drop).map_err(classify::<Self>)
    }

    statements!(|id: [u8; 16]| id.to_vec(), Vec<u8>, Vec::as_slice);
}

const COLUMNS: &[(&str, &str)] = &[
    ("id", "BLOB"),
    ("name", "TEXT"),
    ("key_text", "TEXT"),
    ("fingerprint", "BLOB"),
    ("input", "BLOB"),
    ("steps", "TEXT"),
    ("state", "TEXT"),
    ("cancelled", "INTEGER"),
    ("rest", "TEXT"),
    ("owner", "BLOB"),
    ("fence", "INTEGER"),
    ("due_at", "INTEGER"),
    ("failed_step", "TEXT"),
    ("error", "TEXT"),
    ("created_at", "INTEGER"),
    ("ended_at", "INTEGER"),
];
