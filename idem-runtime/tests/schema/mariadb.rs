//! What `check` sees in MariaDB.

use std::time::Duration;

use idem_runtime::ErrorKind;
use idem_runtime::store::mysql::{check, migrate};
use idem_test_support::{MariaDb, MariaDbDatabase, MariaDbServer};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{Executor as _, MySqlPool};

use crate::world::{Kind as _, all_well, calls, check_all, migrate_all};

async fn refused(pool: &MySqlPool, expected: &str) {
    let error = check(pool).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema, "{error:?}");
    let text = error.to_string();
    assert!(text.contains(expected), "{expected}: {text}");
}

async fn pool(options: MySqlConnectOptions, setup: &'static str) -> MySqlPool {
    MySqlPoolOptions::new()
        .max_connections(4)
        .acquire_timeout(Duration::from_secs(30))
        .after_connect(move |conn, _| {
            Box::pin(async move {
                if !setup.is_empty() {
                    conn.execute(setup).await?;
                }
                Ok(())
            })
        })
        .connect_with(options)
        .await
        .unwrap()
}

#[tokio::test]
async fn what_would_break_the_promise_is_refused() {
    let database = MariaDb::database().await;
    migrate(&database.pool(1).await).await.unwrap();
    for (setup, expected) in [
        (
            "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
            "READ UNCOMMITTED",
        ),
        ("SET SESSION TRANSACTION READ ONLY", "are read-only"),
        ("SET SESSION sql_mode = ''", "not strict"),
    ] {
        refused(&pool(database.options(), setup).await, expected).await;
    }
    let pool = database.pool(1).await;
    let trigger = "CREATE TRIGGER t BEFORE UPDATE ON idem_record FOR EACH ROW SET NEW.outcome = ''";
    database.execute(trigger).await;
    refused(&pool, "the trigger t on idem_record").await;
    database.execute("DROP TRIGGER t").await;
    check(&pool).await.unwrap();
}

#[tokio::test]
async fn each_right_that_the_user_lacks_is_named() {
    let database = MariaDb::database().await;
    let owner = database.pool(2).await;
    migrate_all(&owner).await.unwrap();
    let (name, user) = (database.name(), format!("{}_app", database.name()));
    database.execute(&format!("CREATE USER {user}")).await;
    // Without any right in it the server does not let it in.
    let grant = format!("GRANT SELECT ON {name}.idem_saga_schema TO {user}");
    database.execute(&grant).await;
    let app = pool(database.options().username(&user), "").await;
    refused(&app, "idem_record is missing, or not visible to this role").await;
    for (grant, lacks) in [
        (
            "SELECT ON {}.idem_record",
            "lacks INSERT, UPDATE, DELETE on idem_record",
        ),
        (
            "INSERT, UPDATE ON {}.idem_record",
            "lacks DELETE on idem_record",
        ),
        (
            "DELETE ON {}.idem_record",
            "idem_record_schema is missing, or not visible",
        ),
        (
            "INSERT ON {}.idem_record_schema",
            "lacks SELECT on idem_record_schema",
        ),
    ] {
        let grant = grant.replace("{}", name);
        database.execute(&format!("GRANT {grant} TO {user}")).await;
        refused(&app, lacks).await;
    }
    let rest = format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {name}.* TO {user}");
    database.execute(&rest).await;
    // Rights to a database are read when a session chooses it.
    let app = pool(database.options().username(&user), "").await;
    all_well(check_all(&app).await);
    sqlx::MySql::run(&app, "CREATE TABLE mine (id INT)")
        .await
        .unwrap_err();
    migrate_all(&app).await.unwrap();
    calls(&app, 1).await;
    app.close().await;
    database.execute(&format!("DROP USER {user}")).await;
}

#[tokio::test]
async fn a_read_only_server_is_refused() {
    let server = MariaDbServer::start(&["--read-only"]);
    let database = MariaDbDatabase::on(&server.url()).await;
    let pool = database.pool(1).await;
    migrate(&pool).await.unwrap();
    refused(&pool, "the server is read-only (read_only)").await;
}
