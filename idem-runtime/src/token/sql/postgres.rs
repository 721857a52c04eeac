use sqlx::SqlStr;
use sqlx::postgres::Postgres;
use uuid::Uuid;

use super::{Found, Mark, Texts, TokenDialect, statements};
use crate::key::RecordId;
use crate::store::sql::schema::{Shape, Step, Table, statement};

impl TokenDialect for Postgres {
    fn texts(table: &str) -> Texts {
        let sql = |template| statement(template, table);
        let state = sql(
            "SELECT binding, used_at IS NOT NULL, expires_at <= clock_timestamp() \
                 FROM {table} WHERE id = $1",
        );
        Texts {
            // Waits for a transaction that has inserted the same mark; if that commits, does nothing.
            mark: sql("INSERT INTO {table} (id, binding, expires_at, used_at) \
                 SELECT $1, $2, to_timestamp($3::bigint / 1000.0), clock_timestamp() \
                 WHERE to_timestamp($3::bigint / 1000.0) > clock_timestamp() \
                 ON CONFLICT DO NOTHING"),
            unmark: sql("DELETE FROM {table} WHERE id = $1"),
            mark_state: sql("SELECT EXISTS (SELECT FROM {table} WHERE id = $1), \
                 to_timestamp($2::bigint / 1000.0) <= clock_timestamp()"),
            issue: sql("INSERT INTO {table} (id, binding, expires_at) \
                 VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 millisecond')"),
            take: sql(
                "UPDATE {table} SET used_at = clock_timestamp() WHERE id = $1 \
                 AND binding = $2 AND used_at IS NULL AND expires_at > clock_timestamp()",
            ),
            untake: sql("UPDATE {table} SET used_at = NULL WHERE id = $1"),
            withdraw: sql("DELETE FROM {table} WHERE id = $1 AND used_at IS NULL"),
            state: state.clone(),
            state_now: state,
            purge: sql("DELETE FROM {table} WHERE id IN (SELECT id FROM {table} \
                 WHERE expires_at <= clock_timestamp() - interval '1 hour' \
                 LIMIT $1 FOR UPDATE SKIP LOCKED)"),
        }
    }

    fn shape() -> &'static Shape {
        &TOKEN
    }

    statements!(|id: RecordId| Uuid::from_bytes(*id.as_bytes()));
}

static TOKEN: Shape = Shape {
    steps: &[Step {
        version: 1,
        serves_from: 1,
        name: "token",
        sql: include_str!("migrations/postgres_0001_token.sql"),
    }],
    tables: &[Table {
        name: "{table}",
        columns: &[
            ("id", "uuid"),
            ("binding", "bytea"),
            ("expires_at", "timestamp with time zone"),
            ("used_at", "timestamp with time zone"),
        ],
        key: "id",
        rights: "SELECT,INSERT,UPDATE,DELETE",
    }],
    promises: &[],
};
