use sqlx::sqlite::Sqlite;
use sqlx::{Executor as _, Pool, SqlStr};

use super::{Found, Mark, Texts, TokenDialect, not_made, statements};
use crate::error::Error;
use crate::key::RecordId;
use crate::store::sql::classify;
use crate::store::sql::schema::{Migration, fill, statement, unusable};

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
            state: state.clone(),
            state_now: state,
            purge: sql("DELETE FROM {table} WHERE id IN (SELECT id FROM {table} \
                 WHERE expires_at <= {now} - 3600000 LIMIT ?1)"),
        }
    }

    fn migrations(table: &str) -> Vec<Migration> {
        vec![Migration {
            version: 1,
            name: "token",
            sql: fill(include_str!("migrations/sqlite_0001_token.sql"), table),
        }]
    }

    async fn migrate(pool: &Pool<Self>, table: &str) -> Result<(), Error> {
        upgrade(pool, table).await.map_err(not_made::<Self>)
    }

    async fn check(pool: &Pool<Self>, table: &str) -> Result<(), Error> {
        let mut conn = pool.acquire().await.map_err(classify::<Self>)?;
        let read = statement("SELECT coalesce(max(version), 0) FROM {versions}", table);
        let read = sqlx::query_scalar(read).fetch_one(&mut *conn);
        let at: i32 = read.await.map_err(classify::<Self>)?;
        let want = Self::migrations(table)
            .last()
            .map_or(0, |step| step.version);
        if at != want {
            return Err(unusable(format!(
                "{table} is at version {at}, this build needs {want}"
            )));
        }
        let (schema, local) = table.rsplit_once('.').unwrap_or(("main", table));
        let columns: Vec<(String, String, i64)> =
            sqlx::query_as("SELECT name, type, pk FROM pragma_table_info(?1, ?2)")
                .bind(local.to_owned())
                .bind(schema.to_owned())
                .fetch_all(&mut *conn)
                .await
                .map_err(classify::<Self>)?;
        let is_key = columns
            .iter()
            .all(|(name, _, pk)| (*pk > 0) == (name == "id"));
        let columns = columns.into_iter().map(|(name, kind, _)| (name, kind));
        super::check_columns(table, COLUMNS, &columns.collect::<Vec<_>>())?;
        super::check_key(table, is_key)
    }

    statements!(|id: RecordId| id.as_bytes().to_vec());
}

async fn upgrade(pool: &Pool<Sqlite>, table: &str) -> Result<(), sqlx::Error> {
    // Dropped on an error, it is rolled back before the connection is used again.
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    let versions =
        "CREATE TABLE IF NOT EXISTS {versions} (version INTEGER PRIMARY KEY NOT NULL) STRICT";
    tx.execute(statement(versions, table)).await?;
    let read = statement("SELECT coalesce(max(version), 0) FROM {versions}", table);
    let at: i32 = sqlx::query_scalar(read).fetch_one(&mut *tx).await?;
    let steps = Sqlite::migrations(table).into_iter();
    for step in steps.filter(|step| step.version > at) {
        tx.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(step.sql)))
            .await?;
        let note = statement("INSERT INTO {versions} (version) VALUES (?1)", table);
        sqlx::query(note)
            .bind(step.version)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await
}

const COLUMNS: &[(&str, &str)] = &[
    ("id", "BLOB"),
    ("binding", "BLOB"),
    ("expires_at", "INTEGER"),
    ("used_at", "INTEGER"),
];
