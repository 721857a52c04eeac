//! Schemas in SQLite, seen by its pragmas.

use sqlx::sqlite::Sqlite;
use sqlx::{AssertSqlSafe, Pool, SqliteConnection, Transaction};

use super::{Findings, Found, Promise, Schema, SchemaDialect};
use crate::error::Error;
use crate::store::sql::dialect::classify;

impl SchemaDialect for Sqlite {
    const VERSIONS: &'static str = "CREATE TABLE IF NOT EXISTS {versions} (\n    \
         version INTEGER PRIMARY KEY NOT NULL,\n    serves_from INTEGER NOT NULL\n) STRICT";
    const NOTE: &'static str =
        "INSERT OR IGNORE INTO {versions} (version, serves_from) VALUES ({version}, {serves_from})";
    const FAILED: &'static str = "the schema could not be created; nothing was changed";

    type Session = Transaction<'static, Self>;

    async fn enter(pool: &Pool<Self>, _table: &str) -> Result<Self::Session, Error> {
        let tx = pool.begin_with("BEGIN IMMEDIATE").await;
        tx.map_err(classify::<Self>)
    }

    fn connection(session: &mut Self::Session) -> &mut SqliteConnection {
        session
    }

    async fn leave(session: Self::Session, keep: bool) -> Result<(), sqlx::Error> {
        if keep {
            session.commit().await
        } else {
            session.rollback().await
        }
    }

    async fn run_schema(conn: &mut SqliteConnection, sql: String) -> Result<(), sqlx::Error> {
        let run = sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn);
        run.await.map(drop)
    }

    async fn look(
        conn: &mut SqliteConnection,
        schema: Schema<'_>,
        findings: &mut Findings,
    ) -> Result<Found, sqlx::Error> {
        let mut found = Found::default();
        for (name, table) in schema.tables() {
            let columns = columns(conn, &name).await?;
            if columns.is_empty() {
                found.missing.push(name);
                continue;
            }
            findings.columns(&name, table.columns, |wanted| {
                let mut columns = columns.iter();
                columns.find_map(|(column, kind, _)| (column == wanted).then_some(kind.as_str()))
            });
            let mut key: Vec<_> = columns.iter().filter(|(.., place)| *place > 0).collect();
            key.sort_by_key(|(.., place)| *place);
            let key: Vec<_> = key.iter().map(|(column, ..)| column.as_str()).collect();
            if key.join(", ") != table.key {
                findings.key(&name, table.key);
            }
        }
        found.has_versions = !columns(conn, &schema.versions()).await?.is_empty();
        if found.has_versions {
            let read =
                "SELECT coalesce(max(version), 0), coalesce(max(serves_from), 0) FROM {versions}";
            let read = sqlx::query_as(AssertSqlSafe(schema.fill(read))).fetch_one(&mut *conn);
            found.version = Some(read.await?);
        }
        if schema.promises(Promise::Floor) {
            let keep = schema.fill("{local}_fence_keep");
            let asked = schema.fill(
                "SELECT count(*) FROM {schema}sqlite_schema \
                 WHERE type = 'trigger' AND lower(name) = lower(?1)",
            );
            if number(conn, asked, &[&keep]).await? == 0 {
                let keep = format!("the trigger {keep}, which keeps fences growing,");
                found.missing.push(keep);
            }
        }
        Ok(found)
    }

    async fn survey(
        conn: &mut SqliteConnection,
        schema: Schema<'_>,
        findings: &mut Findings,
    ) -> Result<(), sqlx::Error> {
        foreign_keys(conn, schema, findings).await?;
        if number(conn, "PRAGMA read_uncommitted".to_owned(), &[]).await? != 0 {
            findings.add(
                "PRAGMA read_uncommitted is on: calls would be answered with what is not committed",
                "leave it off",
            );
        }
        for (name, _) in schema.tables() {
            other_rows(conn, schema, &name, findings).await?;
        }
        if columns(conn, schema.table).await?.is_empty() {
            return Ok(());
        }
        // Nothing to delete, but a write: it takes the writer's lock for a moment.
        let probe = Self::run_schema(conn, schema.fill("DELETE FROM {table} WHERE false")).await;
        match probe.as_ref().err().and_then(primary) {
            None => probe,
            // Another connection writes: this database takes writes.
            Some(BUSY) => Ok(()),
            Some(READONLY) => {
                findings.add(
                    "the database takes no writes from this connection",
                    "open the file for writing, and leave PRAGMA query_only off",
                );
                Ok(())
            }
            Some(_) => probe,
        }
    }
}

const BUSY: i32 = 5;
const READONLY: i32 = 8;

/// An error's code without its extension.
fn primary(error: &sqlx::Error) -> Option<i32> {
    let code = error.as_database_error()?.code()?;
    code.parse::<i32>().ok().map(|code| code & 0xff)
}

/// The database that a name is in, and the name there.
fn place(name: &str) -> (&str, &str) {
    name.rsplit_once('.').unwrap_or(("main", name))
}

/// Name, type, and place in the primary key from 1 on.
async fn columns(
    conn: &mut SqliteConnection,
    table: &str,
) -> Result<Vec<(String, String, i64)>, sqlx::Error> {
    let (schema, local) = place(table);
    sqlx::query_as("SELECT name, type, pk FROM pragma_table_info(?1, ?2)")
        .bind(local.to_owned())
        .bind(schema.to_owned())
        .fetch_all(conn)
        .await
}

async fn number(
    conn: &mut SqliteConnection,
    sql: String,
    values: &[&str],
) -> Result<i64, sqlx::Error> {
    let mut asked = sqlx::query_scalar(AssertSqlSafe(sql));
    for value in values {
        asked = asked.bind((*value).to_owned());
    }
    asked.fetch_one(conn).await
}

async fn foreign_keys(
    conn: &mut SqliteConnection,
    schema: Schema<'_>,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    let enforced = number(conn, "PRAGMA foreign_keys".to_owned(), &[]).await? != 0;
    if schema.promises(Promise::ForeignKeys) && !enforced {
        findings.add(
            "foreign keys are not enforced: the steps of a saga that is removed would be taken for \
             those of the next one with its key",
            "set PRAGMA foreign_keys = ON, as sqlx does",
        );
    }
    if !schema.promises(Promise::NothingUnfinished) {
        return Ok(());
    }
    let (database, local) = place(schema.table);
    let asked = "SELECT count(*) FROM pragma_foreign_key_list(?1, ?2) WHERE \"from\" = 'incomplete' \
                 AND lower(\"table\") = lower(?3)";
    let never = schema.fill("{local}_never");
    let keys = number(conn, asked.to_owned(), &[local, database, &never]).await?;
    let exists = !columns(conn, schema.table).await?.is_empty();
    if exists && (keys == 0 || !enforced) {
        findings.unfinished(schema.table);
    }
    let never = schema.fill("{never}");
    if !columns(conn, &never).await?.is_empty() {
        let rows = schema.fill("SELECT count(*) FROM {never}");
        if number(conn, rows, &[]).await? > 0 {
            findings.not_empty(&never);
        }
    }
    Ok(())
}

/// What hides the table's rows, or may drop or change them. A trigger can do so at any time
/// (`RAISE(IGNORE)`).
async fn other_rows(
    conn: &mut SqliteConnection,
    schema: Schema<'_>,
    name: &str,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    let (_, local) = place(name);
    let triggers: Vec<String> = sqlx::query_scalar(AssertSqlSafe(schema.fill(
        "SELECT name FROM {schema}sqlite_schema WHERE type = 'trigger' \
         AND lower(tbl_name) = lower(?1) AND lower(name) <> lower(?2) \
         UNION ALL SELECT name FROM sqlite_temp_schema \
         WHERE type = 'trigger' AND lower(tbl_name) = lower(?1)",
    )))
    .bind(local.to_owned())
    .bind(schema.fill("{local}_fence_keep"))
    .fetch_all(&mut *conn)
    .await?;
    for trigger in triggers {
        findings.trigger(name, &trigger);
    }
    let temporary = "SELECT count(*) FROM sqlite_temp_schema \
                     WHERE type IN ('table', 'view') AND lower(name) = lower(?1)";
    if !name.contains('.') && number(conn, temporary.to_owned(), &[local]).await? > 0 {
        findings.add(
            format!("a temporary table or view {name} stands before the one of that name"),
            "drop it, or name the table main.…",
        );
    }
    Ok(())
}
