//! Sagas on Postgres.

use bytes::Bytes;
use sqlx::postgres::Postgres;
use sqlx::{Row as _, SqlStr};
use uuid::Uuid;

use super::statements::statements;
use super::texts::{Places, Texts, Words};
use super::{Change, Held, NewOwner, NewSaga, SagaDialect};
use crate::key::RecordId;
use crate::steps::filter::{SagaFilter, SagaSummary};
use crate::steps::state::{Rest, SagaRow, SagaState, Stall, StepRow, StepState};
use crate::store::sql::schema::{Promise, Shape, Step, Table};

const WORDS: Words = Words {
    now: "clock_timestamp()",
    after: "clock_timestamp() + {}::bigint * interval '1 millisecond'",
    left: "ceil(extract(epoch FROM due_at - clock_timestamp()) * 1000)::bigint",
    age: "floor(extract(epoch FROM clock_timestamp() - created_at) * 1000)::bigint",
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

    fn saga_shape() -> &'static Shape {
        &SAGA
    }

    statements!(Uuid::from_bytes, Uuid, Uuid::as_bytes);
}

static SAGA: Shape = Shape {
    steps: &[Step {
        version: 1,
        serves_from: 1,
        name: "saga",
        sql: include_str!("migrations/postgres_0001_saga.sql"),
    }],
    tables: &[
        Table {
            name: "{table}",
            columns: &[
                ("id", "uuid"),
                ("name", "text"),
                ("key_text", "text"),
                ("fingerprint", "bytea"),
                ("input", "bytea"),
                ("steps", "text"),
                ("state", "text"),
                ("cancelled", "boolean"),
                ("rest", "text"),
                ("cause", "text"),
                ("cause_step", "text"),
                ("cause_error", "text"),
                ("owner", "uuid"),
                ("fence", "bigint"),
                ("due_at", "timestamp with time zone"),
                ("failed_step", "text"),
                ("error", "text"),
                ("created_at", "timestamp with time zone"),
                ("ended_at", "timestamp with time zone"),
            ],
            key: "id",
            rights: "SELECT,INSERT,UPDATE,DELETE",
        },
        Table {
            name: "{steps}",
            columns: &[
                ("saga", "uuid"),
                ("number", "integer"),
                ("name", "text"),
                ("state", "text"),
                ("unknown_effect", "boolean"),
                ("left_alone", "boolean"),
                ("attempts", "integer"),
                ("undo_attempts", "integer"),
                ("forgiven", "integer"),
                ("undo_forgiven", "integer"),
                ("result", "bytea"),
                ("error", "text"),
                ("changed_at", "timestamp with time zone"),
            ],
            key: "saga, number",
            rights: "SELECT,INSERT,UPDATE",
        },
    ],
    promises: &[Promise::Sequence],
};
