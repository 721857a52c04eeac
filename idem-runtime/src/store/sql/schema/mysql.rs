//! Schemas in MySQL and MariaDB, seen in `information_schema`.

use std::collections::HashMap;

use sqlx::mysql::MySql;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, Pool};

use super::{Findings, Found, Promise, Schema, SchemaDialect, Table};
use crate::error::{Error, ErrorKind};
use crate::key::RecordId;
use crate::store::sql::dialect::classify;
use crate::store::sql::mysql::number;

impl SchemaDialect for MySql {
    const VERSIONS: &'static str = "CREATE TABLE IF NOT EXISTS {versions} (\n    \
         version INT NOT NULL,\n    serves_from INT NOT NULL,\n    \
         applied_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),\n    \
         PRIMARY KEY (version)\n) ENGINE = InnoDB";
    const NOTE: &'static str =
        "INSERT IGNORE INTO {versions} (version, serves_from) VALUES ({version}, {serves_from})";
    // Each statement of a schema commits itself.
    const FAILED: &'static str = "the schema could not be created";

    type Session = MySqlConnection;

    async fn enter(pool: &Pool<Self>, table: &str) -> Result<MySqlConnection, Error> {
        let conn = pool.acquire().await.map_err(classify::<Self>)?;
        // Out of the pool: the lock ends with the connection, whatever becomes of this future.
        let mut conn = conn.detach();
        let name = RecordId::new("", "idem.migrate", &[], table).to_string();
        let locked: Option<i64> = sqlx::query_scalar("SELECT GET_LOCK(CONCAT('idem.', ?), 300)")
            .bind(name)
            .fetch_one(&mut conn)
            .await
            .map_err(classify::<Self>)?;
        match locked {
            Some(1) => Ok(conn),
            _ => Err(Error::new(ErrorKind::StoreUnavailable)
                .detail("another process has been migrating the schema for five minutes")),
        }
    }

    fn connection(session: &mut MySqlConnection) -> &mut MySqlConnection {
        session
    }

    async fn leave(session: MySqlConnection, _keep: bool) -> Result<(), sqlx::Error> {
        // The schema stands; a connection that does not close in good order is closed by its drop.
        let _ = session.close().await;
        Ok(())
    }

    async fn run_schema(conn: &mut MySqlConnection, sql: String) -> Result<(), sqlx::Error> {
        for statement in sql.split_inclusive(";\n") {
            let run = sqlx::raw_sql(AssertSqlSafe(statement.to_owned()));
            match run.execute(&mut *conn).await {
                // Interrupted between the step and its note: the column is there.
                Err(error) if number(&error) == Some(DUPLICATE_COLUMN) => {}
                done => {
                    done?;
                }
            }
        }
        Ok(())
    }

    async fn look(
        conn: &mut MySqlConnection,
        schema: Schema<'_>,
        findings: &mut Findings,
    ) -> Result<Found, sqlx::Error> {
        let mut found = Found::default();
        for (name, table) in schema.tables() {
            let Some(kind) = kind(conn, &name).await? else {
                found.missing.push(name);
                continue;
            };
            judge(&name, table, &kind, findings);
            columns(conn, schema, &name, table, findings).await?;
        }
        found.has_versions = kind(conn, &schema.versions()).await?.is_some();
        if found.has_versions {
            let read =
                "SELECT COALESCE(MAX(version), 0), COALESCE(MAX(serves_from), 0) FROM {versions}";
            let read = sqlx::query_as(AssertSqlSafe(schema.fill(read))).fetch_one(&mut *conn);
            found.version = match read.await {
                Err(error) if is_denied(&error) => None,
                read => Some(read?),
            };
        }
        if found.missing.is_empty() {
            slots(conn, schema, findings).await?;
        }
        Ok(found)
    }

    async fn survey(
        conn: &mut MySqlConnection,
        schema: Schema<'_>,
        findings: &mut Findings,
    ) -> Result<(), sqlx::Error> {
        settings(conn, schema, findings).await?;
        let user: String = sqlx::query_scalar("SELECT CAST(CURRENT_USER() AS CHAR)")
            .fetch_one(&mut *conn)
            .await?;
        let (user, host) = user.rsplit_once('@').unwrap_or((&user, "%"));
        let role = format!("'{user}'@'{host}'");
        for (name, table) in schema.tables() {
            if kind(conn, &name).await?.is_some() {
                rights(conn, &role, &name, table, findings).await?;
                triggers(conn, &name, findings).await?;
            }
        }
        let versions = schema.versions();
        if kind(conn, &versions).await?.is_some() && !is_allowed(conn, &versions).await? {
            findings.rights(&role, "SELECT", &versions);
        }
        Ok(())
    }
}

/// "Duplicate column name".
const DUPLICATE_COLUMN: u16 = 1060;

/// "Cannot execute statement in a READ ONLY transaction".
const READ_ONLY: u16 = 1792;

/// The table's, the column's.
fn is_denied(error: &sqlx::Error) -> bool {
    matches!(number(error), Some(1142 | 1143))
}

/// A table's name, in its database if one is named.
fn parts(table: &str) -> (Option<&str>, &str) {
    match table.split_once('.') {
        Some((schema, name)) => (Some(schema), name),
        None => (None, table),
    }
}

/// A table's engine, and the columns of its primary key.
type Kind = (Option<String>, Option<String>);

async fn kind(conn: &mut MySqlConnection, table: &str) -> Result<Option<Kind>, sqlx::Error> {
    let (schema, name) = parts(table);
    sqlx::query_as(
        "SELECT CAST(engine AS CHAR), (SELECT CAST(GROUP_CONCAT(CONCAT(column_name, \
         COALESCE(CONCAT('(', sub_part, ')'), '')) ORDER BY seq_in_index SEPARATOR ', ') AS CHAR) \
         FROM information_schema.statistics AS s WHERE s.table_schema = t.table_schema \
         AND s.table_name = t.table_name AND s.index_name = 'PRIMARY') \
         FROM information_schema.tables AS t \
         WHERE t.table_schema = COALESCE(?, DATABASE()) AND t.table_name = ?",
    )
    .bind(schema)
    .bind(name)
    .fetch_optional(conn)
    .await
}

fn judge(name: &str, table: &Table, (engine, key): &Kind, findings: &mut Findings) {
    if engine.as_deref() != Some("InnoDB") {
        findings.add(
            format!("the engine of {name} must be InnoDB: another one has no transactions"),
            format!("ALTER TABLE {name} ENGINE = InnoDB"),
        );
    }
    if key.as_deref() != Some(table.key) {
        findings.key(name, table.key);
    }
}

/// Types, that text compares by its bytes, and that the server numbers what it must.
async fn columns(
    conn: &mut MySqlConnection,
    schema: Schema<'_>,
    name: &str,
    table: &Table,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    let (database, local) = parts(name);
    let columns: Vec<(String, String, Option<String>, String)> = sqlx::query_as(
        "SELECT CAST(column_name AS CHAR), CAST(column_type AS CHAR), \
         CAST(collation_name AS CHAR), CAST(extra AS CHAR) FROM information_schema.columns \
         WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?",
    )
    .bind(database)
    .bind(local)
    .fetch_all(conn)
    .await?;
    let columns: Vec<_> = columns
        .into_iter()
        .map(|(name, kind, collation, extra)| (name, without_width(kind), collation, extra))
        .collect();
    let of = |wanted: &str| columns.iter().find(|(column, ..)| column == wanted);
    findings.columns(name, table.columns, |wanted| {
        of(wanted).map(|(_, kind, ..)| kind.as_str())
    });
    for (column, _) in table.columns {
        let Some((_, _, Some(collation), _)) = of(column) else {
            continue;
        };
        if !(collation.starts_with("utf8mb4_") && collation.ends_with("_bin")) {
            findings.add(
                format!("{name}.{column} compares by {collation}, it must be utf8mb4_bin"),
                "MODIFY the column as `migrations` has it",
            );
        }
    }
    for promise in schema.shape.promises {
        let Promise::Numbered(numbered) = promise else {
            continue;
        };
        let column = of(numbered).filter(|_| name == schema.table);
        if column.is_some_and(|(.., extra)| !extra.to_ascii_lowercase().contains("auto_increment"))
        {
            findings.add(
                format!("{name}.{numbered} must be AUTO_INCREMENT: fences would not grow"),
                "MODIFY the column as `migrations` has it",
            );
        }
    }
    Ok(())
}

/// A number's type without the width at which it is shown, which MySQL 8 no longer has.
fn without_width(kind: String) -> String {
    match kind.split_once('(') {
        Some((number, rest)) if number.ends_with("int") => {
            let after = rest.split_once(')').map_or("", |(_, after)| after);
            format!("{number}{after}")
        }
        _ => kind,
    }
}

async fn slots(
    conn: &mut MySqlConnection,
    schema: Schema<'_>,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    for promise in schema.shape.promises {
        let Promise::Slots(slots) = promise else {
            continue;
        };
        if !is_allowed(conn, &schema.fill("{fences}")).await? {
            continue;
        }
        let count = schema.fill("SELECT COUNT(*) FROM {fences} WHERE slot < ?");
        let count = sqlx::query_scalar(AssertSqlSafe(count)).bind(*slots);
        let there: i64 = count.fetch_one(&mut *conn).await?;
        if there != i64::from(*slots) {
            findings.add(
                format!(
                    "{} has {there} of the {slots} slots in which fences are drawn: calls would be \
                     refused",
                    schema.fill("{fences}"),
                ),
                "run the text of `migrations` again",
            );
        }
    }
    Ok(())
}

/// The server and the session.
async fn settings(
    conn: &mut MySqlConnection,
    schema: Schema<'_>,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    let read: Vec<(String, String)> = sqlx::query_as(
        "SHOW SESSION VARIABLES WHERE Variable_name IN ('sql_mode', 'autocommit', 'read_only', \
         'super_read_only', 'innodb_read_only', 'tx_read_only', 'transaction_read_only', \
         'tx_isolation', 'transaction_isolation', 'innodb_rollback_on_timeout')",
    )
    .fetch_all(conn)
    .await?;
    let settings: HashMap<&str, &str> = read.iter().map(|(k, v)| (&**k, &**v)).collect();
    let is_on = |name: &str| {
        let value = settings.get(name);
        value.is_some_and(|value| !matches!(*value, "OFF" | "0" | ""))
    };
    let mut modes = settings.get("sql_mode").unwrap_or(&"").split(',');
    if !modes.any(|mode| mode.starts_with("STRICT_")) {
        findings.add(
            "sql_mode is not strict: values that do not fit would be cut",
            "add STRICT_TRANS_TABLES to sql_mode",
        );
    }
    for level in ["tx_isolation", "transaction_isolation"] {
        if settings.get(level) == Some(&"READ-UNCOMMITTED") {
            findings.add(
                "the session's isolation level is READ UNCOMMITTED: an outcome could be replayed \
                 that is then rolled back",
                "set READ COMMITTED or a higher level",
            );
        }
    }
    let read_only = ["read_only", "super_read_only", "innodb_read_only"];
    for setting in read_only.into_iter().filter(|name| is_on(name)) {
        findings.add(
            format!("the server is read-only ({setting})"),
            "connect to the primary",
        );
    }
    if is_on("tx_read_only") || is_on("transaction_read_only") {
        findings.add(
            "transactions of this session are read-only",
            "SET SESSION TRANSACTION READ WRITE",
        );
    }
    if schema.promises(Promise::WaitsEndAlone) && is_on("innodb_rollback_on_timeout") {
        findings.add(
            "innodb_rollback_on_timeout is on: a duplicate that asks while the first call runs would \
             lose its whole transaction",
            "start the server with it off",
        );
    }
    if schema.promises(Promise::StatementsCommit) && !is_on("autocommit") {
        findings.add(
            "autocommit is off: a reservation would not be committed by its statement",
            "SET autocommit = 1",
        );
    }
    Ok(())
}

/// The server is asked to plan each statement, which it does for those that it would run.
async fn rights(
    conn: &mut MySqlConnection,
    role: &str,
    name: &str,
    table: &Table,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    let mut lacks = Vec::new();
    for right in table.rights.split(',') {
        let column = table.columns.first().map_or("id", |(column, _)| column);
        let probe = match right {
            "INSERT" => format!("EXPLAIN INSERT INTO {name} SELECT * FROM {name} WHERE 1 = 0"),
            "UPDATE" => format!("EXPLAIN UPDATE {name} SET {column} = {column} WHERE 1 = 0"),
            "DELETE" => format!("EXPLAIN DELETE FROM {name} WHERE 1 = 0"),
            _ => format!("EXPLAIN SELECT 1 FROM {name} WHERE 1 = 0"),
        };
        let probe = sqlx::raw_sql(AssertSqlSafe(probe)).execute(&mut *conn);
        match probe.await {
            Err(error) if is_denied(&error) => lacks.push(right),
            // Found among the settings.
            Err(error) if number(&error) == Some(READ_ONLY) => {}
            probe => {
                probe?;
            }
        }
    }
    if !lacks.is_empty() {
        findings.rights(role, &lacks.join(", "), name);
    }
    Ok(())
}

async fn is_allowed(conn: &mut MySqlConnection, name: &str) -> Result<bool, sqlx::Error> {
    let read = AssertSqlSafe(format!("EXPLAIN SELECT 1 FROM {name} WHERE 1 = 0"));
    match sqlx::raw_sql(read).execute(conn).await {
        Err(error) if is_denied(&error) => Ok(false),
        read => read.map(|_| true),
    }
}

async fn triggers(
    conn: &mut MySqlConnection,
    name: &str,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    let (schema, local) = parts(name);
    let triggers: Vec<String> = sqlx::query_scalar(
        "SELECT CAST(trigger_name AS CHAR) FROM information_schema.triggers \
         WHERE event_object_schema = COALESCE(?, DATABASE()) AND event_object_table = ? \
         AND action_timing = 'BEFORE'",
    )
    .bind(schema)
    .bind(local)
    .fetch_all(conn)
    .await?;
    for trigger in triggers {
        findings.trigger(name, &trigger);
    }
    Ok(())
}
