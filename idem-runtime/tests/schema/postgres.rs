//! What `check` sees in Postgres.

use std::time::Duration;

use idem_runtime::store::postgres::{check, migrate};
use idem_runtime::store::sql::{LeasedSql, Records};
use idem_runtime::{Error, ErrorKind};
use idem_test_support::{Postgres, TestDatabase, postgres};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Executor as _, PgPool};

use crate::world::{self, Kind as _, all_well, calls, check_all, migrate_all};

#[track_caller]
fn says(checked: Result<(), Error>, expected: &[&str]) {
    let error = checked.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema, "{error:?}");
    let text = error.to_string();
    for expected in expected {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

/// A pool whose sessions begin with `setup`.
async fn with_sessions(database: &TestDatabase, setup: impl Into<String>) -> PgPool {
    let setup = setup.into();
    PgPoolOptions::new()
        .max_connections(4)
        .acquire_timeout(Duration::from_secs(30))
        .after_connect(move |conn, _| {
            let setup = AssertSqlSafe(setup.clone());
            Box::pin(async move { conn.execute(sqlx::raw_sql(setup)).await.map(drop) })
        })
        .connect_with(database.options())
        .await
        .unwrap()
}

#[tokio::test]
async fn what_would_break_the_promise_is_refused() {
    let world = world::postgres().await;
    migrate(&world.pool).await.unwrap();
    let function = "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS \
                    'BEGIN RETURN NULL; END'";
    sqlx::Postgres::run(&world.pool, function).await.unwrap();
    for (change, back, expected) in [
        (
            "ALTER TABLE idem_record SET UNLOGGED",
            "ALTER TABLE idem_record SET LOGGED",
            "ALTER TABLE idem_record SET LOGGED",
        ),
        (
            "CREATE TRIGGER t BEFORE INSERT ON idem_record FOR EACH ROW EXECUTE FUNCTION swallow()",
            "DROP TRIGGER t ON idem_record",
            "the trigger t on idem_record",
        ),
        (
            "CREATE RULE r AS ON DELETE TO idem_record DO INSTEAD NOTHING",
            "DROP RULE r ON idem_record",
            "the trigger r on idem_record",
        ),
        (
            "CREATE UNIQUE INDEX u ON idem_record (key_text)",
            "DROP INDEX u",
            "unique index u",
        ),
        (
            "ALTER TABLE idem_record DISABLE TRIGGER ALL",
            "ALTER TABLE idem_record ENABLE TRIGGER ALL",
            "foreign key",
        ),
        (
            "ALTER TABLE idem_record RENAME TO other; CREATE VIEW idem_record AS SELECT * FROM other",
            "DROP VIEW idem_record; ALTER TABLE other RENAME TO idem_record",
            "idem_record is not a table",
        ),
    ] {
        sqlx::Postgres::run(&world.pool, change).await.unwrap();
        says(check(&world.pool).await, &[expected]);
        sqlx::Postgres::run(&world.pool, back).await.unwrap();
        check(&world.pool).await.unwrap();
    }
    let after =
        "CREATE TRIGGER t AFTER INSERT ON idem_record FOR EACH ROW EXECUTE FUNCTION swallow()";
    sqlx::Postgres::run(&world.pool, after).await.unwrap();
    check(&world.pool).await.unwrap();
}

#[tokio::test]
async fn a_temporary_table_is_refused() {
    let database = Postgres::database().await;
    migrate(&database.pool(1).await).await.unwrap();
    let setup = "CREATE TEMPORARY TABLE idem_record (LIKE public.idem_record INCLUDING ALL)";
    let pool = with_sessions(&database, setup).await;
    says(check(&pool).await, &["idem_record is temporary"]);
}

#[tokio::test]
async fn a_partition_that_a_crash_would_empty_is_refused() {
    let database = Postgres::database().await;
    let pool = database.pool(2).await;
    migrate(&pool).await.unwrap();
    let partition = |kind: &str| {
        format!(
            "DROP TABLE idem_record; CREATE TABLE idem_record (id uuid PRIMARY KEY, scope text NOT NULL, \
             key_text text, fingerprint bytea NOT NULL, owner uuid NOT NULL, incomplete smallint \
             REFERENCES idem_record_never (id) DEFERRABLE INITIALLY DEFERRED, outcome bytea, \
             created_at timestamptz NOT NULL DEFAULT clock_timestamp(), completed_at timestamptz, \
             expires_at timestamptz, known_until timestamptz) PARTITION BY HASH (id); \
             CREATE {kind} TABLE part PARTITION OF idem_record FOR VALUES WITH (MODULUS 1, REMAINDER 0)"
        )
    };
    database.execute(&partition("")).await;
    check(&pool).await.unwrap();
    assert_eq!(sqlx::Postgres::call(&pool, 1, 1).await.unwrap(), 1);
    database.execute(&partition("UNLOGGED")).await;
    says(check(&pool).await, &["UNLOGGED"]);
}

/// PG-17: the role lacks rights, one after the other.
#[tokio::test]
async fn pg_17_each_right_that_the_role_lacks_is_named() {
    let database = Postgres::database().await;
    let owner = database.pool(2).await;
    migrate_all(&owner).await.unwrap();
    let role = database.name().replace("idem_", "idem_app_");
    database.execute(&format!("CREATE ROLE {role}")).await;
    let pool = with_sessions(&database, format!("SET ROLE {role}")).await;
    for (grant, lacks) in [
        ("", "SELECT, INSERT, UPDATE, DELETE on idem_record ("),
        (
            "GRANT SELECT, INSERT ON idem_record TO",
            "lacks UPDATE, DELETE on idem_record (GRANT UPDATE, DELETE ON idem_record TO",
        ),
        (
            "GRANT UPDATE ON idem_record TO",
            "lacks DELETE on idem_record (",
        ),
        (
            "GRANT DELETE ON idem_record TO",
            "lacks SELECT on idem_record_schema",
        ),
    ] {
        if !grant.is_empty() {
            database.execute(&format!("{grant} {role}")).await;
        }
        says(check(&pool).await, &[lacks]);
    }
    let lease = LeasedSql::new(pool.clone());
    let lacks = [
        "SELECT, INSERT, UPDATE, DELETE on idem_lease",
        "USAGE on SEQUENCE idem_lease_fence",
    ];
    says(lease.check().await, &lacks);
    let rest = format!(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}; \
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}"
    );
    database.execute(&rest).await;
    all_well(check_all(&pool).await);
    // It may not create tables, and need not.
    let refused = sqlx::Postgres::run(&pool, "CREATE TABLE mine (id integer)").await;
    refused.unwrap_err();
    migrate_all(&pool).await.unwrap();
    calls(&pool, 1).await;

    database
        .execute("CREATE SCHEMA closed; REVOKE ALL ON SCHEMA closed FROM PUBLIC")
        .await;
    let closed = Records::in_table("closed.idem_record").unwrap();
    migrate(&closed.pool(&owner)).await.unwrap();
    says(
        check(&closed.pool(&pool)).await,
        &["lacks USAGE on SCHEMA closed"],
    );
    drop(pool);
    database
        .execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}"))
        .await;
}

#[tokio::test]
async fn row_level_security_is_refused_for_the_role_that_it_applies_to() {
    let database = Postgres::database().await;
    let owner = database.pool(2).await;
    migrate(&owner).await.unwrap();
    let role = database.name().replace("idem_", "idem_row_");
    database
        .execute(&format!(
            "ALTER TABLE idem_record ENABLE ROW LEVEL SECURITY; CREATE ROLE {role}; \
             GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}"
        ))
        .await;
    check(&owner).await.unwrap();
    let pool = with_sessions(&database, format!("SET ROLE {role}")).await;
    says(check(&pool).await, &["row level security", &role]);
    drop(pool);
    database
        .execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}"))
        .await;
}

#[tokio::test]
async fn everything_is_reported_at_once() {
    let database = Postgres::database().await;
    let pool = database.pool(1).await;
    migrate(&pool).await.unwrap();
    database
        .execute(
            "ALTER TABLE idem_record DROP COLUMN known_until; ALTER TABLE idem_record SET UNLOGGED; \
             ALTER TABLE idem_record DROP CONSTRAINT idem_record_incomplete_fkey",
        )
        .await;
    let setup = "SET default_transaction_read_only = on; SET session_replication_role = replica";
    let pool = with_sessions(&database, setup).await;
    let all = [
        "5 problems: 1. ",
        "no column known_until",
        "UNLOGGED",
        "foreign key on `incomplete`",
        "read-only",
        "session_replication_role",
    ];
    says(check(&pool).await, &all);
}

#[tokio::test]
async fn an_encoding_that_has_not_every_key_is_refused() {
    let database = Postgres::database().await;
    let latin = format!("{}_latin", database.name());
    let create = format!(
        "CREATE DATABASE {latin} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    );
    database.execute(&create).await;
    let url = database.url().replace(database.name(), &latin);
    let pool = postgres::pool(&url, 2).await;
    migrate(&pool).await.unwrap();
    let checked = check(&pool).await;
    pool.close().await;
    database.execute(&format!("DROP DATABASE {latin}")).await;
    says(checked, &["encoding is LATIN1"]);
}

/// No statement depends on how the session reads a backslash.
#[tokio::test]
async fn what_a_purge_leaves_is_read_whatever_strings_mean() {
    let world = world::postgres().await;
    migrate(&world.pool).await.unwrap();
    assert_eq!(sqlx::Postgres::call(&world.pool, 1, 1).await.unwrap(), 1);
    let world::Keep::Postgres(database) = &world.keep else {
        unreachable!()
    };
    let pool = with_sessions(database, "SET standard_conforming_strings = off").await;
    check(&pool).await.unwrap();
    database
        .execute(
            "UPDATE idem_record SET expires_at = now() - interval '1 s', \
             known_until = now() + interval '1 day'",
        )
        .await;
    assert_eq!(Records::default().purge(&pool, 10).await.unwrap(), 1);
    let late = sqlx::Postgres::call(&pool, 1, 2).await.unwrap_err();
    let world::Failure::Idem(late) = late else {
        panic!("{late}");
    };
    assert_eq!(late.kind(), ErrorKind::OutcomeGone);
}
