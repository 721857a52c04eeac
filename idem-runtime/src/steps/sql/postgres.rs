use bytes::Bytes;
use sqlx::postgres::Postgres;
use sqlx::{Pool, Row as _, SqlStr};
use uuid::Uuid;

use super::texts::{Places, Texts, Words, steps};
use super::{Change, Held, NewOwner, NewSaga, SagaDialect, statements};
use crate::error::Error;
use crate::key::RecordId;
use crate::steps::state::{Rest, SagaRow, SagaState, StepRow, StepState};
use crate::store::sql::Migration;
use crate::store::sql::classify;
use crate::store::sql::postgres::setup::{apply, check_table};
use crate::store::sql::schema::fill;

const WORDS: Words = Words {
    now: "clock_timestamp()",
    after: "clock_timestamp() + {}::bigint * interval '1 millisecond'",
    left: "ceil(extract(epoch FROM due_at - clock_timestamp()) * 1000)::bigint",
    first_fence: "nextval('{fences}')",
    next_fence: "greatest(fence + 1, nextval('{fences}'))",
    fence: "fence",
    or_nothing: "ON CONFLICT DO NOTHING",
    lock: "FOR UPDATE SKIP LOCKED",
    alive: "AND current_setting('idem.step', true) = 'open'",
    purge: "DELETE FROM {table} WHERE id IN (SELECT id FROM {table} \
        WHERE ended_at <= clock_timestamp() - $1::bigint * interval '1 millisecond' \
        LIMIT $2 FOR UPDATE SKIP LOCKED)",
    places: Places::Numbered,
};

impl SagaDialect for Postgres {
    const ONE_WRITER: bool = false;
    const DROPPABLE: bool = true;
    const MARK: Option<&'static str> = Some("SET LOCAL idem.step = 'open'");
    const UNMARK: Option<&'static str> = None;

    fn saga_texts(table: &str) -> Texts {
        WORDS.texts(table)
    }

    fn saga_migrations(table: &str) -> Vec<Migration> {
        let sql = include_str!("migrations/postgres_0001_saga.sql");
        vec![Migration {
            version: 1,
            name: "saga",
            sql: fill(&sql.replace("{steps}", &steps(table)), table),
        }]
    }

    async fn migrate_sagas(pool: &Pool<Self>, table: &str) -> Result<(), Error> {
        apply(pool, table, Self::saga_migrations(table)).await
    }

    async fn check_sagas(pool: &Pool<Self>, table: &str) -> Result<(), Error> {
        let mut conn = pool.acquire().await.map_err(classify::<Self>)?;
        check_table(&mut conn, table, &Self::saga_migrations(table), COLUMNS).await?;
        let texts = Self::saga_texts(table);
        let read = Self::read_steps(&mut conn, &texts, RecordId::from_bytes([0; 16])).await;
        read.map(drop).map_err(classify::<Self>)
    }

    statements!(Uuid::from_bytes, Uuid, Uuid::as_bytes);
}

const COLUMNS: &[(&str, &str)] = &[
    ("id", "uuid"),
    ("name", "text"),
    ("key_text", "text"),
    ("fingerprint", "bytea"),
    ("input", "bytea"),
    ("steps", "text"),
    ("state", "text"),
    ("cancelled", "boolean"),
    ("rest", "text"),
    ("owner", "uuid"),
    ("fence", "bigint"),
    ("due_at", "timestamp with time zone"),
    ("failed_step", "text"),
    ("error", "text"),
    ("created_at", "timestamp with time zone"),
    ("ended_at", "timestamp with time zone"),
];
