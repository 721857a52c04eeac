//! Schemas in Postgres, seen in its catalogues.

use sqlx::postgres::Postgres;
use sqlx::{AssertSqlSafe, PgConnection, Pool, Transaction};

use super::{Findings, Found, Promise, Schema, SchemaDialect};
use crate::error::Error;
use crate::key::RecordId;
use crate::store::sql::dialect::classify;

/// The relations of `$1`, in their order.
const NAMED: &str = "unnest($1::text[]) WITH ORDINALITY AS n(name, place) \
                     LEFT JOIN pg_class AS c ON c.oid = to_regclass(n.name)";

/// A relation's partitions, or it alone.
const PARTS: &str = "(SELECT c.oid UNION SELECT relid FROM pg_partition_tree(c.oid))";

impl SchemaDialect for Postgres {
    const VERSIONS: &'static str = "CREATE TABLE IF NOT EXISTS {versions} (\n    \
         version integer PRIMARY KEY,\n    serves_from integer NOT NULL,\n    \
         applied_at timestamptz NOT NULL DEFAULT now()\n)";
    const NOTE: &'static str = "INSERT INTO {versions} (version, serves_from) \
         VALUES ({version}, {serves_from}) ON CONFLICT DO NOTHING";
    const FAILED: &'static str = "the schema could not be created; nothing was changed";

    type Session = Transaction<'static, Self>;

    async fn enter(pool: &Pool<Self>, table: &str) -> Result<Self::Session, Error> {
        let mut tx = pool.begin().await.map_err(classify::<Self>)?;
        let lock = RecordId::new("", "idem.migrate", &[], table).lock_number();
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(lock)
            .execute(&mut *tx)
            .await
            .map_err(classify::<Self>)?;
        Ok(tx)
    }

    fn connection(session: &mut Self::Session) -> &mut PgConnection {
        session
    }

    async fn leave(session: Self::Session, keep: bool) -> Result<(), sqlx::Error> {
        if keep {
            session.commit().await
        } else {
            session.rollback().await
        }
    }

    async fn run_schema(conn: &mut PgConnection, sql: String) -> Result<(), sqlx::Error> {
        let run = sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn);
        run.await.map(drop)
    }

    async fn look(
        conn: &mut PgConnection,
        schema: Schema<'_>,
        findings: &mut Findings,
    ) -> Result<Found, sqlx::Error> {
        let mut found = Found::default();
        if let Some((namespace, role)) = closed_to(conn, schema).await? {
            findings.rights(&role, "USAGE", &format!("SCHEMA {namespace}"));
            found.closed = true;
            return Ok(found);
        }
        let kinds = kinds(conn, schema).await?;
        let names: Vec<String> = schema.tables().map(|(name, _)| name).collect();
        for (name, (_, kind, _)) in names.iter().zip(&kinds) {
            match kind.as_deref() {
                None => found.missing.push(name.clone()),
                Some("r" | "p") => {}
                Some(_) => findings.add(
                    format!("{name} is not a table"),
                    "drop it and run `migrate`, or name another table",
                ),
            }
        }
        let rest = kinds.get(names.len()..).unwrap_or_default();
        for (name, kind, readable) in rest {
            if *name != schema.versions() {
                if kind.as_deref() != Some("S") {
                    found.missing.push(format!("the sequence of fences {name}"));
                }
                continue;
            }
            found.has_versions = kind.is_some();
            if *readable == Some(true) {
                let read = schema.fill(
                    "SELECT coalesce(max(version), 0), coalesce(max(serves_from), 0) FROM {versions}",
                );
                let read = sqlx::query_as(AssertSqlSafe(read)).fetch_one(&mut *conn);
                found.version = Some(read.await?);
            }
        }
        columns(conn, schema, &names, &found, findings).await?;
        constraints(conn, schema, &names, &found, findings).await?;
        Ok(found)
    }

    async fn survey(
        conn: &mut PgConnection,
        schema: Schema<'_>,
        findings: &mut Findings,
    ) -> Result<(), sqlx::Error> {
        let role = settings(conn, schema, findings).await?;
        relations(conn, schema, &role, findings).await
    }
}

/// The schema that the role may not look into, and the role.
async fn closed_to(
    conn: &mut PgConnection,
    schema: Schema<'_>,
) -> Result<Option<(String, String)>, sqlx::Error> {
    let Some((namespace, _)) = schema.table.split_once('.') else {
        return Ok(None);
    };
    sqlx::query_as(
        "SELECT nspname::text, current_user::text FROM pg_namespace \
         WHERE nspname = lower($1) AND NOT has_schema_privilege(oid, 'USAGE')",
    )
    .bind(namespace)
    .fetch_optional(conn)
    .await
}

/// What stands under each name, and whether it can be read: the tables, the rest, the versions.
async fn kinds(
    conn: &mut PgConnection,
    schema: Schema<'_>,
) -> Result<Vec<(String, Option<String>, Option<bool>)>, sqlx::Error> {
    let names = all(schema).into_iter().map(|(name, _)| name);
    sqlx::query_as(AssertSqlSafe(format!(
        "SELECT n.name, c.relkind::text, \
         CASE WHEN c.relkind <> 'S' THEN has_table_privilege(c.oid, 'SELECT') END \
         FROM {NAMED} ORDER BY n.place"
    )))
    .bind(names.collect::<Vec<_>>())
    .fetch_all(conn)
    .await
}

/// Every relation with the rights that a call needs on it.
fn all(schema: Schema<'_>) -> Vec<(String, &'static str)> {
    let tables = schema.tables().map(|(name, table)| (name, table.rights));
    let mut all: Vec<_> = tables.collect();
    if schema.promises(Promise::Sequence) {
        all.push((schema.fill("{fences}"), "USAGE"));
    }
    all.push((schema.versions(), "SELECT"));
    all
}

async fn columns(
    conn: &mut PgConnection,
    schema: Schema<'_>,
    names: &[String],
    found: &Found,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    let columns: Vec<(String, String, String)> = sqlx::query_as(AssertSqlSafe(format!(
        "SELECT n.name, attname::text, format_type(atttypid, atttypmod) FROM {NAMED} \
         JOIN pg_attribute ON attrelid = c.oid AND attnum > 0 AND NOT attisdropped"
    )))
    .bind(names)
    .fetch_all(conn)
    .await?;
    for (name, table) in schema.tables() {
        if found.missing.contains(&name) {
            continue;
        }
        findings.columns(&name, table.columns, |wanted| {
            let mut of_it = columns.iter().filter(|(of, ..)| *of == name);
            of_it.find_map(|(_, column, kind)| (column == wanted).then_some(kind.as_str()))
        });
    }
    Ok(())
}

/// The primary keys, the foreign key that refuses to commit what is unfinished, and the check that
/// keeps the table empty at which it points.
async fn constraints(
    conn: &mut PgConnection,
    schema: Schema<'_>,
    names: &[String],
    found: &Found,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    let never = schema.fill("{never}");
    let constraints: Vec<(String, String, bool, bool)> = sqlx::query_as(AssertSqlSafe(format!(
        "SELECT n.name, pg_get_constraintdef(k.oid), k.convalidated, \
         k.condeferred AND coalesce(k.confrelid = to_regclass($2), false) AND NOT EXISTS \
         (SELECT FROM pg_trigger WHERE tgconstraint = k.oid AND tgenabled NOT IN ('O', 'A')) \
         FROM {NAMED} JOIN pg_constraint AS k ON k.conrelid = c.oid"
    )))
    .bind(names)
    .bind(&never)
    .fetch_all(conn)
    .await?;
    let has = |name: &str, holds: &dyn Fn(&str, bool, bool) -> bool| {
        constraints
            .iter()
            .any(|(of, text, valid, deferred)| of == name && holds(text, *valid, *deferred))
    };
    for (name, table) in schema.tables() {
        let key = format!("PRIMARY KEY ({})", table.key);
        if !found.missing.contains(&name) && !has(&name, &|text, _, _| text == key) {
            findings.key(&name, table.key);
        }
    }
    let main = schema.fill("{table}");
    if !schema.promises(Promise::NothingUnfinished) || found.missing.contains(&main) {
        return Ok(());
    }
    if !has(&main, &|text, valid, deferred| {
        valid && deferred && text.starts_with("FOREIGN KEY (incomplete)")
    }) {
        findings.unfinished(&main);
    }
    // Asked of the constraint, since the role need not be allowed to read the table.
    if !found.missing.contains(&never)
        && !has(&never, &|text, valid, _| valid && text == "CHECK (false)")
    {
        findings.not_empty(&never);
    }
    Ok(())
}

/// The server and the session; gives the role.
async fn settings(
    conn: &mut PgConnection,
    schema: Schema<'_>,
    findings: &mut Findings,
) -> Result<String, sqlx::Error> {
    let (role, standby, read_only, encoding, replica): (String, bool, bool, String, bool) =
        sqlx::query_as(
            "SELECT current_user::text, pg_is_in_recovery(), \
             current_setting('transaction_read_only')::boolean, current_setting('server_encoding'), \
             current_setting('session_replication_role') = 'replica'",
        )
        .fetch_one(conn)
        .await?;
    if standby {
        findings.add(
            "the server is a standby and takes no writes",
            "connect to the primary",
        );
    } else if read_only {
        findings.add(
            "transactions of this session are read-only",
            "unset default_transaction_read_only for this role and database",
        );
    }
    if !matches!(encoding.as_str(), "UTF8" | "SQL_ASCII") {
        findings.add(
            format!(
                "the database's encoding is {encoding}: a key with other characters is refused"
            ),
            "keep the records in a database WITH ENCODING 'UTF8'",
        );
    }
    if replica && schema.promises(Promise::NothingUnfinished) {
        findings.add(
            "session_replication_role is replica: foreign keys are not enforced, and an unfinished \
             call could be committed",
            "leave it at origin",
        );
    }
    Ok(role)
}

type Relation = (
    String,
    bool,
    Vec<String>,
    String,
    bool,
    Vec<String>,
    Vec<String>,
);

/// What each relation is exposed to, and what the role may do with it.
async fn relations(
    conn: &mut PgConnection,
    schema: Schema<'_>,
    role: &str,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    let (names, rights): (Vec<_>, Vec<_>) = all(schema).into_iter().unzip();
    let read: Vec<Relation> = sqlx::query_as(AssertSqlSafe(format!(
        "SELECT n.name, c.relkind = 'S', \
         ARRAY(SELECT r FROM unnest(string_to_array(($2::text[])[n.place::int], ',')) AS r WHERE NOT \
         CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, r) \
         ELSE has_table_privilege(c.oid, r) END), \
         (SELECT max(relpersistence::text) FROM pg_class WHERE oid IN {PARTS}), \
         row_security_active(c.oid), \
         ARRAY(SELECT tgname::text FROM pg_trigger WHERE tgrelid IN {PARTS} AND NOT tgisinternal \
         AND tgenabled IN ('O', 'A') AND tgtype & 1 = 1 AND tgtype & 66 <> 0 \
         UNION SELECT rulename::text FROM pg_rewrite \
         WHERE ev_class IN {PARTS} AND ev_enabled IN ('O', 'A') AND c.relkind IN ('r', 'p')), \
         ARRAY(SELECT indexrelid::regclass::text FROM pg_index \
         WHERE indrelid = c.oid AND indisunique AND NOT indisprimary) \
         FROM {NAMED} WHERE c.oid IS NOT NULL ORDER BY n.place"
    )))
    .bind(&names)
    .bind(&rights)
    .fetch_all(conn)
    .await?;
    for (name, sequence, rights, persistence, row_security, triggers, indexes) in read {
        let kind = if sequence { "SEQUENCE" } else { "TABLE" };
        if !rights.is_empty() {
            let on = if sequence {
                format!("SEQUENCE {name}")
            } else {
                name.clone()
            };
            findings.rights(role, &rights.join(", "), &on);
        }
        match persistence.as_str() {
            "p" => {}
            "t" => findings.add(
                format!("{name} is temporary: no other session sees it"),
                "drop it and run `migrate`",
            ),
            _ => findings.add(
                format!("{name} is UNLOGGED, or a part of it is: a crash empties it"),
                format!("ALTER {kind} {name} SET LOGGED"),
            ),
        }
        if row_security {
            findings.add(
                format!(
                    "row level security applies to {role} on {name}: a row that it hides counts as \
                     running for ever"
                ),
                format!("ALTER TABLE {name} DISABLE ROW LEVEL SECURITY, or exempt the role"),
            );
        }
        for trigger in triggers {
            findings.trigger(&name, &trigger);
        }
        for index in indexes {
            findings.add(
                format!(
                    "by the unique index {index} a new call in {name} could be taken for a repeat"
                ),
                "drop it",
            );
        }
    }
    Ok(())
}
