//! The same record in two tables of one database is two records: neither call is in the other's way.

use idem::{ErrorKind, idempotent, status::Status, store::sql::Records};
use sqlx::{AssertSqlSafe, PgTransaction};

use crate::fixture::{Failure, Pg, World, kind};

#[idempotent(key = "{id}", ttl = "1h", reject, store = "tx", scope = "test.tenant", shared_scope, companion = call)]
async fn here(tx: &mut PgTransaction<'_>, id: u8) -> Result<String, Failure> {
    write(tx).await
}

#[idempotent(
    key = "{id}",
    ttl = "1h",
    reject,
    store = "records.on(tx)",
    scope = "test.tenant",
    shared_scope
)]
async fn there(records: &Records, tx: &mut PgTransaction<'_>, id: u8) -> Result<String, Failure> {
    write(tx).await
}

async fn write(tx: &mut PgTransaction<'_>) -> Result<String, Failure> {
    let insert = sqlx::query_scalar("INSERT INTO done VALUES (1) RETURNING current_schema()::text");
    Ok(insert.fetch_one(&mut **tx).await?)
}

async fn tenants() -> World<Pg> {
    let world = World::<Pg>::new(3).await;
    for tenant in ["ta", "tb"] {
        world.execute(format!("CREATE SCHEMA {tenant}")).await;
        world
            .execute(format!("CREATE TABLE {tenant}.done (n int)"))
            .await;
        let records = Records::in_table(&format!("{tenant}.idem_record")).unwrap();
        idem::store::postgres::migrate(&records.pool(&world.pool))
            .await
            .unwrap();
    }
    world
}

async fn begin(world: &World<Pg>, tenant: &str) -> PgTransaction<'static> {
    let mut tx = world.pool.begin().await.unwrap();
    let path = AssertSqlSafe(format!("SET LOCAL search_path = {tenant}"));
    sqlx::raw_sql(path).execute(&mut *tx).await.unwrap();
    tx
}

/// Each tenant has a schema, which the search path of its transaction finds.
#[tokio::test]
async fn pg_16_a_tenants_call_is_not_in_anothers_way() {
    let world = tenants().await;
    // Each connection meets both paths with the statements that it has prepared.
    for id in 0..4 {
        let mut a = begin(&world, "ta").await;
        let mut b = begin(&world, "tb").await;
        assert_eq!(here(&mut a, id).await.unwrap(), "ta");
        let seen = call(&id).unwrap().status(&mut b).await.unwrap();
        assert!(seen.is_absent(), "{seen:?}");
        assert_eq!(here(&mut b, id).await.unwrap(), "tb");
        // Within one table the second is refused, and told of the first.
        let mut again = begin(&world, "ta").await;
        assert_eq!(kind(here(&mut again, id).await), ErrorKind::InProgress);
        let seen = call(&id).unwrap().status(&mut again).await.unwrap();
        assert!(matches!(seen, Status::InProgress(_)), "{seen:?}");
        again.rollback().await.unwrap();
        a.commit().await.unwrap();
        b.commit().await.unwrap();
    }
    for tenant in ["ta", "tb"] {
        let done = format!("SELECT count(*) FROM {tenant}.done");
        assert_eq!(world.number(done).await, 4);
    }
}

/// Two tables by name.
#[tokio::test]
async fn pg_16_a_call_in_another_table_is_another_call() {
    let world = tenants().await;
    let records = Records::in_table("tb.idem_record").unwrap();
    let mut a = begin(&world, "ta").await;
    let mut b = begin(&world, "tb").await;
    assert_eq!(here(&mut a, 1).await.unwrap(), "ta");
    assert_eq!(there(&records, &mut b, 1).await.unwrap(), "tb");
    // The qualified name and the search path find one table.
    let mut again = begin(&world, "tb").await;
    assert_eq!(kind(here(&mut again, 1).await), ErrorKind::InProgress);
    again.rollback().await.unwrap();
    a.commit().await.unwrap();
    b.commit().await.unwrap();
}

/// Whoever has only read a record and keeps its lock is not taken for the one who runs the call.
#[tokio::test]
async fn a_transaction_that_replayed_does_not_run_the_call() {
    let world = tenants().await;
    let mut first = begin(&world, "ta").await;
    here(&mut first, 1).await.unwrap();
    first.commit().await.unwrap();
    let mut reader = begin(&world, "ta").await;
    here(&mut reader, 1).await.unwrap();
    let mut other = begin(&world, "ta").await;
    assert!(call(&1).unwrap().forget(&mut other).await.unwrap());
    other.commit().await.unwrap();
    let mut asks = begin(&world, "ta").await;
    let seen = call(&1).unwrap().status(&mut asks).await.unwrap();
    assert!(seen.is_absent(), "{seen:?}");
    reader.commit().await.unwrap();
    assert_eq!(here(&mut asks, 1).await.unwrap(), "ta");
}

/// One transaction forgets the record and goes on: a duplicate learns at once that it must wait.
#[tokio::test]
async fn a_duplicate_does_not_wait_in_the_database_for_one_that_forgets() {
    let world = tenants().await;
    let mut first = begin(&world, "ta").await;
    here(&mut first, 1).await.unwrap();
    first.commit().await.unwrap();
    let mut forgets = begin(&world, "ta").await;
    assert!(call(&1).unwrap().forget(&mut forgets).await.unwrap());
    let mut duplicate = begin(&world, "ta").await;
    let told = tokio::time::timeout(std::time::Duration::from_secs(20), here(&mut duplicate, 1));
    // The deletion is not committed: the record still answers.
    assert_eq!(told.await.unwrap().unwrap(), "ta");
    forgets.commit().await.unwrap();
    duplicate.rollback().await.unwrap();
}

/// Without advisory locks the unique index keeps calls apart; a transaction takes none, however many
/// calls it makes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_11_without_advisory_locks() {
    let world = tenants().await;
    let records = Records::in_table("tb.idem_record")
        .unwrap()
        .without_advisory_locks();
    let mut a = begin(&world, "tb").await;
    for id in 0..200 {
        there(&records, &mut a, id).await.unwrap();
    }
    let held = sqlx::query_scalar::<_, i64>(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    );
    assert_eq!(held.fetch_one(&mut *a).await.unwrap(), 0);
    let mut b = begin(&world, "tb").await;
    let waits = tokio::spawn({
        let records = records.clone();
        async move {
            let answer = there(&records, &mut b, 7).await;
            b.commit().await.unwrap();
            answer
        }
    });
    let blocked = || async { world.backend.0.waiting_for_lock().await == 1 };
    crate::fixture::until("the duplicate's wait", blocked).await;
    a.rollback().await.unwrap();
    // The first is gone: the second runs, and a third replays.
    assert_eq!(waits.await.unwrap().unwrap(), "tb");
    let mut c = begin(&world, "tb").await;
    let (answer, seen) = idem::observe(there(&records, &mut c, 7)).await;
    assert_eq!((answer.unwrap(), seen.replayed()), ("tb".into(), true));
    let forgot = call(&7).unwrap().forget(records.on(&mut c)).await.unwrap();
    assert!(forgot);
    assert_eq!(there(&records, &mut c, 7).await.unwrap(), "tb");
    c.commit().await.unwrap();
    assert_eq!(world.number("SELECT count(*) FROM tb.done").await, 2);
}
