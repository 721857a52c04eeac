//! Sagas on MySQL and MariaDB.

use bytes::Bytes;
use sqlx::mysql::MySql;
use sqlx::{Row as _, SqlStr};

use super::statements::statements;
use super::texts::{Places, Texts, Words};
use super::{Change, Held, NewOwner, NewSaga, SagaDialect};
use crate::key::RecordId;
use crate::steps::filter::{SagaFilter, SagaSummary};
use crate::steps::state::{Rest, SagaRow, SagaState, Stall, StepRow, StepState};
use crate::store::sql::schema::{Promise, Shape, Step, Table};

const WORDS: Words = Words {
    now: "UTC_TIMESTAMP(6)",
    after: "UTC_TIMESTAMP(6) + INTERVAL ({} * 1000) MICROSECOND",
    left: "(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), due_at) + 999) DIV 1000",
    age: "TIMESTAMPDIFF(MICROSECOND, created_at, UTC_TIMESTAMP(6)) DIV 1000",
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
        sql: include_str!("migrations/mysql_0001_saga.sql"),
    }],
    tables: &[
        Table {
            name: "{table}",
            columns: &[
                ("id", "binary(16)"),
                ("serial", "bigint"),
                ("name", "varchar(255)"),
                ("key_text", "mediumtext"),
                ("fingerprint", "varbinary(64)"),
                ("input", "longblob"),
                ("steps", "text"),
                ("state", "varchar(20)"),
                ("cancelled", "tinyint"),
                ("rest", "varchar(20)"),
                ("cause", "varchar(40)"),
                ("cause_step", "varchar(255)"),
                ("cause_error", "text"),
                ("owner", "binary(16)"),
                ("fence", "bigint"),
                ("due_at", "datetime(6)"),
                ("failed_step", "varchar(255)"),
                ("error", "text"),
                ("created_at", "datetime(6)"),
                ("ended_at", "datetime(6)"),
            ],
            key: "id",
            rights: "SELECT,INSERT,UPDATE,DELETE",
        },
        Table {
            name: "{steps}",
            columns: &[
                ("saga", "binary(16)"),
                ("number", "int"),
                ("name", "varchar(255)"),
                ("state", "varchar(20)"),
                ("unknown_effect", "tinyint"),
                ("left_alone", "tinyint"),
                ("attempts", "int"),
                ("undo_attempts", "int"),
                ("forgiven", "int"),
                ("undo_forgiven", "int"),
                ("result", "longblob"),
                ("error", "text"),
                ("changed_at", "datetime(6)"),
            ],
            key: "saga, number",
            rights: "SELECT,INSERT,UPDATE",
        },
    ],
    promises: &[Promise::Numbered("serial")],
};
