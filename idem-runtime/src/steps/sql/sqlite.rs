//! Sagas on SQLite.

use bytes::Bytes;
use sqlx::sqlite::Sqlite;
use sqlx::{Row as _, SqlStr};

use super::statements::statements;
use super::texts::{Places, Texts, Words};
use super::{Change, Held, NewOwner, NewSaga, SagaDialect};
use crate::key::RecordId;
use crate::steps::filter::{SagaFilter, SagaSummary};
use crate::steps::state::{Rest, SagaRow, SagaState, Stall, StepRow, StepState};
use crate::store::sql::schema::{Promise, Shape, Step, Table};

const WORDS: Words = Words {
    now: "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
    after: "CAST(unixepoch('subsec') * 1000 AS INTEGER) + {}",
    left: "due_at - CAST(unixepoch('subsec') * 1000 AS INTEGER)",
    age: "CAST(unixepoch('subsec') * 1000 AS INTEGER) - created_at",
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

    fn saga_shape() -> &'static Shape {
        &SAGA
    }

    statements!(|id: [u8; 16]| id.to_vec(), Vec<u8>, Vec::as_slice);
}

static SAGA: Shape = Shape {
    steps: &[Step {
        version: 1,
        serves_from: 1,
        name: "saga",
        sql: include_str!("migrations/sqlite_0001_saga.sql"),
    }],
    tables: &[
        Table {
            name: "{table}",
            columns: &[
                ("id", "BLOB"),
                ("name", "TEXT"),
                ("key_text", "TEXT"),
                ("fingerprint", "BLOB"),
                ("input", "BLOB"),
                ("steps", "TEXT"),
                ("state", "TEXT"),
                ("cancelled", "INTEGER"),
                ("rest", "TEXT"),
                ("cause", "TEXT"),
                ("cause_step", "TEXT"),
                ("cause_error", "TEXT"),
                ("owner", "BLOB"),
                ("fence", "INTEGER"),
                ("due_at", "INTEGER"),
                ("failed_step", "TEXT"),
                ("error", "TEXT"),
                ("created_at", "INTEGER"),
                ("ended_at", "INTEGER"),
            ],
            key: "id",
            rights: "SELECT,INSERT,UPDATE,DELETE",
        },
        Table {
            name: "{steps}",
            columns: &[
                ("saga", "BLOB"),
                ("number", "INTEGER"),
                ("name", "TEXT"),
                ("state", "TEXT"),
                ("unknown_effect", "INTEGER"),
                ("left_alone", "INTEGER"),
                ("attempts", "INTEGER"),
                ("undo_attempts", "INTEGER"),
                ("forgiven", "INTEGER"),
                ("undo_forgiven", "INTEGER"),
                ("result", "BLOB"),
                ("error", "TEXT"),
                ("changed_at", "INTEGER"),
            ],
            key: "saga, number",
            rights: "SELECT,INSERT,UPDATE",
        },
        Table {
            name: "{fences}",
            columns: &[("id", "INTEGER"), ("floor", "INTEGER")],
            key: "id",
            rights: "SELECT",
        },
    ],
    promises: &[Promise::ForeignKeys, Promise::Floor],
};
