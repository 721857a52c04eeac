use sqlx::postgres::Postgres;
use sqlx::{Executor as _, Pool, SqlStr};
use uuid::Uuid;

use super::{Found, Mark, Texts, TokenDialect, not_made, statements};
use crate::error::Error;
use crate::key::RecordId;
use crate::store::sql::classify;
use crate::store::sql::schema::{Migration, fill, statement, unusable};

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
            state: state.clone(),
            state_now: state,
            purge: sql("DELETE FROM {table} WHERE id IN (SELECT id FROM {table} \
                 WHERE expires_at <= clock_timestamp() - interval '1 hour' \
                 LIMIT $1 FOR UPDATE SKIP LOCKED)"),
        }
    }

    fn migrations(table: &str) -> Vec<Migration> {
        vec![Migration {
            version: 1,
            name: "token",
            sql: fill(include_str!("migrations/postgres_0001_token.sql"), table),
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
        let columns: Vec<(String, String)> = sqlx::query_as(
            "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute \
             WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped",
        )
        .bind(table)
        .fetch_all(&mut *conn)
        .await
        .map_err(classify::<Self>)?;
        super::check_columns(table, COLUMNS, &columns)?;
        let key: Option<String> = sqlx::query_scalar(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint \
             WHERE conrelid = $1::text::regclass AND contype = 'p'",
        )
        .bind(table)
        .fetch_optional(&mut *conn)
        .await
        .map_err(classify::<Self>)?;
        super::check_key(table, key.as_deref() == Some("PRIMARY KEY (id)"))
    }

    statements!(|id: RecordId| Uuid::from_bytes(*id.as_bytes()));
}

async fn upgrade(pool: &Pool<Postgres>, table: &str) -> Result<(), sqlx::Error> {
    // Dropped on an error, it is rolled back before the connection is used again.
    let mut tx = pool.begin().await?;
    // One migrating process at a time.
    let lock = RecordId::new("", "idem.migrate", &[], table).lock_number();
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(lock)
        .execute(&mut *tx)
        .await?;
    let versions = "CREATE TABLE IF NOT EXISTS {versions} (version integer PRIMARY KEY, \
                    applied_at timestamptz NOT NULL DEFAULT now())";
    tx.execute(statement(versions, table)).await?;
    let read = statement("SELECT coalesce(max(version), 0) FROM {versions}", table);
    let at: i32 = sqlx::query_scalar(read).fetch_one(&mut *tx).await?;
    let steps = Postgres::migrations(table).into_iter();
    for step in steps.filter(|step| step.version > at) {
        tx.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(step.sql)))
            .await?;
        let note = statement("INSERT INTO {versions} (version) VALUES ($1)", table);
        sqlx::query(note)
            .bind(step.version)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await
}

const COLUMNS: &[(&str, &str)] = &[
    ("id", "uuid"),
    ("binding", "bytea"),
    ("expires_at", "timestamp with time zone"),
    ("used_at", "timestamp with time zone"),
];
