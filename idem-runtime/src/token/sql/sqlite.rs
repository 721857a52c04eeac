use sqlx::SqlStr;
use sqlx::sqlite::Sqlite;

use super::{Found, Mark, Texts, TokenDialect, statements};
use crate::key::RecordId;
use crate::store::sql::schema::{Shape, Step, Table, statement};

/// SQLite has no time type: epoch milliseconds by the database's clock.
const NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

impl TokenDialect for Sqlite {
    fn texts(table: &str) -> Texts {
        let sql = |template: &str| statement(&template.replace("{now}", NOW), table);
        let state = sql("SELECT binding, used_at IS NOT NULL, expires_at <= {now} \
                 FROM {table} WHERE id = ?1");
        Texts {
            mark: sql("INSERT INTO {table} (id, binding, expires_at, used_at) \
                 SELECT ?1, ?2, ?3, {now} WHERE ?3 > {now} ON CONFLICT DO NOTHING"),
            unmark: sql("DELETE FROM {table} WHERE id = ?1"),
            mark_state: sql("SELECT EXISTS (SELECT 1 FROM {table} WHERE id = ?1), ?2 <= {now}"),
            issue: sql("INSERT INTO {table} (id, binding, expires_at) VALUES (?1, ?2, {now} + ?3)"),
            take: sql("UPDATE {table} SET used_at = {now} WHERE id = ?1 \
                 AND binding = ?2 AND used_at IS NULL AND expires_at > {now}"),
            untake: sql("UPDATE {table} SET used_at = NULL WHERE id = ?1"),
            withdraw: sql("DELETE FROM {table} WHERE id = ?1 AND used_at IS NULL"),
            state: state.clone(),
            state_now: state,
            purge: sql("DELETE FROM {table} WHERE id IN (SELECT id FROM {table} \
                 WHERE expires_at <= {now} - 3600000 LIMIT ?1)"),
        }
    }

    fn shape() -> &'static Shape {
        &TOKEN
    }

    statements!(|id: RecordId| id.as_bytes().to_vec());
}

static TOKEN: Shape = Shape {
    steps: &[Step {
        version: 1,
        serves_from: 1,
        name: "token",
        sql: include_str!("migrations/sqlite_0001_token.sql"),
    }],
    tables: &[Table {
        name: "{table}",
        columns: &[
            ("id", "BLOB"),
            ("binding", "BLOB"),
            ("expires_at", "INTEGER"),
            ("used_at", "INTEGER"),
        ],
        key: "id",
        rights: "SELECT,INSERT,UPDATE,DELETE",
    }],
    promises: &[],
};
