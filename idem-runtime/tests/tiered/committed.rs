//! What a commit that was acknowledged did not commit never reaches the front, on every database.

use idem_runtime::__private::{Entered, Run as _, contract, enter, leave};
use idem_runtime::store::sql::Dialect;
use idem_runtime::store::tiered::{AfterCommit, MemoryFront, Tier};
use idem_test_support::{MariaDb, Postgres, Sqlite};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{Acquire as _, Executor as _, MySqlPool, Pool, Transaction};

use crate::support::{DAY, Failure, prepare};

fn memory() -> Tier<MemoryFront> {
    Tier::new(MemoryFront::new(1 << 20))
}

/// A call in the caller's transaction whose body answers `value` and does nothing.
async fn call<D: Dialect>(
    tier: &Tier<MemoryFront>,
    tx: &mut Transaction<'_, D>,
    after: &AfterCommit<MemoryFront>,
    key: &str,
    value: u64,
) -> u64 {
    let contract = contract::<u64, Failure>();
    let call = prepare(&DAY, key, 0);
    let run = match enter(&mut tier.over(tx).noting(after), call, &contract).await {
        Entered::Run(run) => run,
        Entered::Answer(answer) => return answer.unwrap(),
    };
    let driven = run.driver().drive(async { Ok(value) }).await;
    leave(&mut tier.over(tx).noting(after), run, driven, &contract)
        .await
        .unwrap()
}

/// The next call runs: nothing of the first is left, in the database or in the front.
async fn runs<D: Dialect>(tier: &Tier<MemoryFront>, pool: &Pool<D>, key: &str) {
    let after = tier.after_commit();
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(call(tier, &mut tx, &after, key, 9).await, 9);
    tx.commit().await.unwrap();
    after.committed(pool).await;
}

/// TX-14 for the front: the savepoint of one call is rolled back, the transaction is committed.
macro_rules! a_savepoint_that_is_rolled_back_is_not_put {
    ($pool:expr) => {{
        let pool = $pool;
        let tier = memory();
        let after = tier.after_commit();
        let mut tx = pool.begin().await.unwrap();
        assert_eq!(call(&tier, &mut tx, &after, "kept", 1).await, 1);
        let mut savepoint = tx.begin().await.unwrap();
        assert_eq!(call(&tier, &mut savepoint, &after, "back", 2).await, 2);
        savepoint.rollback().await.unwrap();
        tx.commit().await.unwrap();
        after.committed(&pool).await;
        assert_eq!(tier.front().len(), 1, "the call that was committed");
        runs(&tier, &pool, "back").await;
        assert_eq!(tier.front().len(), 2);

        // Rolled back, and run again by another call: the record there is not the noted one.
        let after = tier.after_commit();
        let mut tx = pool.begin().await.unwrap();
        let mut savepoint = tx.begin().await.unwrap();
        assert_eq!(call(&tier, &mut savepoint, &after, "other", 3).await, 3);
        savepoint.rollback().await.unwrap();
        tx.rollback().await.unwrap();
        let elsewhere = memory();
        runs(&elsewhere, &pool, "other").await;
        after.committed(&pool).await;
        assert_eq!(tier.front().len(), 2);
    }};
}

async fn mariadb() -> (idem_test_support::MariaDbDatabase, MySqlPool) {
    let database = MariaDb::database().await;
    let pool = database.pool(4).await;
    idem_runtime::store::mysql::migrate(&pool).await.unwrap();
    (database, pool)
}

#[tokio::test]
async fn tx_14_a_savepoint_that_is_rolled_back_is_not_put_postgres() {
    let (_database, pool) = crate::support::database().await;
    a_savepoint_that_is_rolled_back_is_not_put!(pool);
}

#[tokio::test]
async fn tx_14_a_savepoint_that_is_rolled_back_is_not_put_mariadb() {
    let (_database, pool) = mariadb().await;
    a_savepoint_that_is_rolled_back_is_not_put!(pool);
}

#[tokio::test]
async fn tx_14_a_savepoint_that_is_rolled_back_is_not_put_sqlite() {
    let file = Sqlite::file().await;
    let pool = file.pool(4).await;
    idem_runtime::store::sqlite::migrate(&pool).await.unwrap();
    a_savepoint_that_is_rolled_back_is_not_put!(pool);
}

/// Postgres turns the commit of a failed transaction into a rollback, and sqlx reports it as done.
#[tokio::test]
async fn a_commit_after_an_error_that_nobody_looked_at_puts_nothing() {
    let (_database, pool) = crate::support::database().await;
    let tier = memory();
    let after = tier.after_commit();
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(call(&tier, &mut tx, &after, "7", 1).await, 1);
    assert!(tx.execute("SELECT 1 / 0").await.is_err());
    tx.commit().await.unwrap();
    after.committed(&pool).await;
    assert!(tier.front().is_empty());
    runs(&tier, &pool, "7").await;
}

/// The database has ended the transaction of a deadlock's victim; the commit is acknowledged.
#[tokio::test]
async fn a_commit_after_a_deadlock_puts_nothing() {
    let (database, pool) = mariadb().await;
    database
        .execute("CREATE TABLE held (id INT PRIMARY KEY, n INT NOT NULL) ENGINE = InnoDB")
        .await;
    database
        .execute("INSERT INTO held SELECT seq, 0 FROM seq_1_to_500")
        .await;
    let tier = memory();
    let after = tier.after_commit();
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(call(&tier, &mut tx, &after, "7", 1).await, 1);
    tx.execute("UPDATE held SET n = 1 WHERE id = 1")
        .await
        .unwrap();
    // The one that has changed less is the victim.
    let mut other = pool.begin().await.unwrap();
    other
        .execute("UPDATE held SET n = 2 WHERE id BETWEEN 2 AND 500")
        .await
        .unwrap();
    let crossing = tokio::spawn(async move {
        let crossed = other.execute("UPDATE held SET n = 2 WHERE id = 1").await;
        other.rollback().await.unwrap();
        crossed.is_ok()
    });
    let victim = tx.execute("UPDATE held SET n = 1 WHERE id = 2").await;
    assert!(crossing.await.unwrap());
    assert!(victim.is_err());
    tx.commit().await.unwrap();
    after.committed(&pool).await;
    assert!(tier.front().is_empty());
    runs(&tier, &pool, "7").await;
}

/// A session that reads what is not committed does not make it so.
#[tokio::test]
async fn a_session_that_reads_uncommitted_records_puts_none() {
    let (database, pool) = mariadb().await;
    let dirty = MySqlPoolOptions::new()
        .after_connect(|conn, _| {
            Box::pin(async move {
                let level = "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED";
                conn.execute(level).await.map(drop)
            })
        })
        .connect(database.url())
        .await
        .unwrap();
    let tier = memory();
    let (early, after) = (tier.after_commit(), tier.after_commit());
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(call(&tier, &mut tx, &early, "7", 1).await, 1);
    early.committed(&dirty).await;
    assert!(tier.front().is_empty());
    tx.rollback().await.unwrap();

    let mut tx = pool.begin().await.unwrap();
    assert_eq!(call(&tier, &mut tx, &after, "7", 2).await, 2);
    tx.commit().await.unwrap();
    after.committed(&dirty).await;
    assert_eq!(tier.front().len(), 1);
    // The level was for that one statement.
    let level: String = sqlx::query_scalar("SELECT @@tx_isolation")
        .fetch_one(&dirty)
        .await
        .unwrap();
    assert_eq!(level, "READ-UNCOMMITTED");
}

/// More than one statement's worth.
#[tokio::test]
async fn every_noted_call_is_put() {
    let (_database, pool) = crate::support::database().await;
    let tier = memory();
    let after = tier.after_commit();
    let mut tx = pool.begin().await.unwrap();
    for n in 0..300 {
        assert_eq!(call(&tier, &mut tx, &after, &n.to_string(), n).await, n);
    }
    tx.commit().await.unwrap();
    after.committed(&pool).await;
    assert_eq!(tier.front().len(), 300);
}

/// A database that does not answer leaves the front as it is.
#[tokio::test]
async fn a_database_that_cannot_be_asked_puts_nothing() {
    let (database, pool) = crate::support::database().await;
    let tier = memory();
    let after = tier.after_commit();
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(call(&tier, &mut tx, &after, "7", 1).await, 1);
    tx.commit().await.unwrap();
    let closed = Postgres::database().await.pool(1).await;
    closed.close().await;
    after.committed(&closed).await;
    assert!(tier.front().is_empty());
    drop(database);
}
