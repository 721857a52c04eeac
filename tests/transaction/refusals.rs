//! What a database refuses for good is said so, with the cause in the text and never a value.

use std::time::Duration;

use idem::{Effect, ErrorKind, Retry, idempotent, store::sql::Records};
use sqlx::Executor as _;

use crate::fixture::{Backend, Failure, Lite, Pg, Probe, Receipt, Tx, World, effect, pay};

/// The framework's error of one call in a transaction, after `before` was run in it.
async fn after<B: Backend>(world: &World<B>, before: &str, id: &str) -> (idem::Error, usize) {
    let probe = Probe::new();
    let mut tx = world.begin().await;
    B::execute(&mut tx, before).await.unwrap();
    let error = pay::<B>(&mut tx, id, 100, &probe).await.unwrap_err().idem();
    tx.rollback().await.ok();
    (error, probe.runs())
}

fn refused(error: &idem::Error, words: &[&str]) {
    assert_eq!(error.kind(), ErrorKind::StoreRefused, "{error}");
    assert_eq!(error.effect(), Effect::None, "{error}");
    assert_eq!(error.retry(), Retry::Never, "{error}");
    says(error, words);
}

fn says(error: &idem::Error, words: &[&str]) {
    for word in words {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_17_a_role_without_rights_is_refused_for_good() {
    let world = World::<Pg>::new(2).await;
    let role = format!("idem_{}", world.backend.0.name());
    world.execute(format!("CREATE ROLE {role}")).await;
    let become_it = format!("SET LOCAL ROLE {role}");
    let (error, runs) = after(&world, &become_it, "one").await;
    refused(&error, &["permission denied", "42501"]);
    // Rights for the reservation and none for its outcome.
    world
        .execute(format!(
            "GRANT INSERT, SELECT ON idem_record, effect TO {role}"
        ))
        .await;
    world
        .execute(format!("GRANT INSERT ON effect TO {role}"))
        .await;
    let (error, later_runs) = after(&world, &become_it, "one").await;
    refused(&error, &["permission denied", "42501"]);
    assert_eq!((runs, later_runs), (0, 1));
    // A row-level policy that lets nobody in.
    world
        .execute(format!("GRANT ALL ON idem_record TO {role}"))
        .await;
    world
        .execute("ALTER TABLE idem_record ENABLE ROW LEVEL SECURITY")
        .await;
    let (error, _) = after(&world, &become_it, "one").await;
    refused(&error, &["row-level policy", "42501"]);
    world.execute(format!("DROP OWNED BY {role}")).await;
    world.execute(format!("DROP ROLE {role}")).await;
    assert_eq!(
        (world.effects("one").await, world.records().await),
        (0, (0, 0))
    );
}

/// A failover leaves clients on a server that takes no writes: a later call, not the next moment's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_server_asks_for_a_pause() {
    let world = World::<Pg>::new(1).await;
    let (error, runs) = after(&world, "SET TRANSACTION READ ONLY", "one").await;
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert!(matches!(error.retry(), Retry::Later(Some(_))), "{error:?}");
    assert_eq!((error.effect(), runs), (Effect::None, 0));
    says(&error, &["read-only", "25006"]);

    let world = World::<Lite>::new(1).await;
    let (error, _) = after(&world, "PRAGMA query_only = on", "one").await;
    refused(&error, &["read-only", "(code 8)"]);
}

#[idempotent(key = "{id}", ttl = "1h", store = "tx")]
async fn says_much(tx: &mut Tx<'_, Lite>, id: &str) -> Result<String, Failure> {
    Lite::execute(tx, effect(id)).await?;
    Ok("x".repeat(100_000))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_database_asks_for_room() {
    let world = World::<Lite>::new(1).await;
    let mut tx = world.begin().await;
    // It never goes below what there is: no page is added any more.
    Lite::execute(&mut tx, "PRAGMA max_page_count = 1")
        .await
        .unwrap();
    let error = says_much(&mut tx, "one").await.unwrap_err().idem();
    assert_eq!(error.kind(), ErrorKind::StoreExhausted, "{error}");
    assert!(matches!(error.retry(), Retry::Later(Some(_))), "{error:?}");
    says(&error, &["full", "(code 13)"]);
    tx.rollback().await.ok();
    assert_eq!(
        (world.effects("one").await, world.records().await),
        (0, (0, 0))
    );
}

/// The key's text goes into a column of the database's encoding.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_character_that_the_database_cannot_hold() {
    let world = World::<Pg>::new(1).await;
    let latin = format!("{}_latin1", world.backend.0.name());
    world
        .execute(format!(
            "CREATE DATABASE {latin} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
        ))
        .await;
    let there = world.backend.0.options().database(&latin);
    let there = sqlx::postgres::PgPoolOptions::new()
        .max_connections(1)
        .connect_with(there)
        .await
        .unwrap();
    idem::store::postgres::migrate(&there).await.unwrap();
    there
        .execute("CREATE TABLE effect (name text)")
        .await
        .unwrap();
    let probe = Probe::new();
    let mut tx = there.begin().await.unwrap();
    let error = pay::<Pg>(&mut tx, "订单", 100, &probe)
        .await
        .unwrap_err()
        .idem();
    refused(&error, &["encoding", "22P05"]);
    assert!(!error.to_string().contains('订'), "{error}");
    tx.rollback().await.unwrap();
    there.close().await;
    world.execute(format!("DROP DATABASE {latin}")).await;
}

/// `SET CONSTRAINTS ALL IMMEDIATE` makes the guard of unfinished reservations fail at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_constraints_all_immediate_is_named() {
    let world = World::<Pg>::new(1).await;
    let (error, runs) = after(&world, "SET CONSTRAINTS ALL IMMEDIATE", "one").await;
    assert_eq!(error.kind(), ErrorKind::TransactionEnded, "{error}");
    assert_eq!(
        (error.effect(), error.retry(), runs),
        (Effect::None, Retry::Never, 0)
    );
    says(
        &error,
        &["SET CONSTRAINTS by name", "idem_record_incomplete_fkey"],
    );
    // By name it is the application's own business.
    world
        .execute("CREATE TABLE child (name text UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        .await;
    let probe = Probe::new();
    let mut tx = world.begin().await;
    Pg::execute(&mut tx, "SET CONSTRAINTS child_name_key IMMEDIATE")
        .await
        .unwrap();
    pay::<Pg>(&mut tx, "one", 100, &probe).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.effects("one").await, 1);
}

/// The caller sends `COMMIT` or `ROLLBACK` as SQL and goes on with the same `Transaction`.
async fn a_transaction_that_was_ended_before_the_call<B: Backend>() {
    for sql in ["COMMIT", "ROLLBACK"] {
        // sqlx still counts the transaction: its connection is of no use afterwards.
        let world = World::<B>::new(2).await;
        let probe = Probe::new();
        let mut tx = world.begin().await;
        B::execute(&mut tx, sql).await.unwrap();
        let error = pay::<B>(&mut tx, "one", 100, &probe)
            .await
            .unwrap_err()
            .idem();
        assert_eq!(error.kind(), ErrorKind::TransactionEnded, "{error}");
        assert_eq!(
            (error.effect(), error.retry(), probe.runs()),
            (Effect::None, Retry::Never, 0)
        );
        says(&error, &["sent as SQL"]);
        let _ = tx.commit().await;
        assert_eq!(
            (world.effects("one").await, world.records().await),
            (0, (0, 0))
        );
    }
}

#[idempotent(key = "{id}", ttl = "1h", store = "records.on(tx)")]
async fn moves<B: Backend>(
    records: &Records,
    tx: &mut Tx<'_, B>,
    id: &str,
    sql: &str,
) -> Result<Receipt, Failure> {
    B::execute(tx, effect(id)).await?;
    B::execute(tx, sql).await?;
    Ok(Receipt::of(id))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_path_that_the_body_changes_is_named() {
    let world = World::<Pg>::new(1).await;
    world.execute("CREATE SCHEMA elsewhere").await;
    world.execute("CREATE SCHEMA tenant").await;
    world
        .execute("CREATE TABLE tenant.idem_record (LIKE public.idem_record)")
        .await;
    let bare = Records::default();
    for (schema, words) in [("elsewhere", "42P01"), ("tenant", "is not found")] {
        let mut tx = world.begin().await;
        let sql = format!("SET LOCAL search_path = {schema}");
        let error = moves::<Pg>(&bare, &mut tx, schema, &sql)
            .await
            .unwrap_err()
            .idem();
        assert_eq!(error.kind(), ErrorKind::TransactionEnded, "{error}");
        assert_eq!(error.retry(), Retry::Never);
        says(&error, &["search_path", words]);
        tx.rollback().await.unwrap();
        let mut tx = world.begin().await;
        let named = Records::in_table("public.idem_record").unwrap();
        moves::<Pg>(&named, &mut tx, schema, &sql).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(world.effects(schema).await, 1);
    }
}

/// A pooler in transaction mode, or `DEALLOCATE ALL`, takes the prepared statements away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_prepared_statement_is_named() {
    let world = World::<Pg>::new(1).await;
    world.pay("one", &Probe::new()).await.unwrap();
    let (error, _) = after(&world, "DEALLOCATE ALL", "one").await;
    refused(&error, &["statement_cache_capacity(0)", "26000"]);
    let options = world.backend.0.options().statement_cache_capacity(0);
    let pool = sqlx::postgres::PgPoolOptions::new()
        .max_connections(1)
        .connect_with(options)
        .await
        .unwrap();
    for _ in 0..2 {
        let mut tx = pool.begin().await.unwrap();
        pay::<Pg>(&mut tx, "one", 100, &Probe::new()).await.unwrap();
        tx.execute("DEALLOCATE ALL").await.unwrap();
        pay::<Pg>(&mut tx, "one", 100, &Probe::new()).await.unwrap();
        tx.commit().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_cannot_be_reached_says_why() {
    let pool = sqlx::postgres::PgPoolOptions::new()
        .acquire_timeout(Duration::from_millis(300))
        .connect_lazy("postgres://nobody@127.0.0.1:1/none")
        .unwrap();
    let error = idem::store::postgres::check(&pool).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    says(&error, &["time-out"]);

    let world = World::<Pg>::new(1).await;
    let nobody = world
        .backend
        .0
        .options()
        .database("there_is_no_such_database");
    let pool = sqlx::postgres::PgPoolOptions::new().connect_lazy_with(nobody);
    let error = idem::store::postgres::check(&pool).await.unwrap_err();
    refused(&error, &["no such database", "3D000"]);
}

/// The server's own messages carry the values of rows; the texts of errors do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_text_carries_what_the_server_says_of_the_row() {
    let world = World::<Pg>::new(1).await;
    world
        .execute("ALTER TABLE idem_record ADD CONSTRAINT short CHECK (length(key_text) < 8)")
        .await;
    let card = "4111-1111-1111-1111";
    let (error, _) = after(&world, "SELECT 1", card).await;
    refused(&error, &["23514", "table idem_record", "constraint short"]);
    assert!(!error.to_string().contains(card), "{error}");
}

on_both! {
    a_transaction_that_was_ended_before_the_call,
}
