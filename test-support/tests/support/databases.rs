use idem_test_support::{
    MariaDb, Postgres, Sqlite,
    proxy::{Fault, Statement},
};
use sqlx::{Connection, Row};

#[tokio::test]
async fn a_postgres_database_is_fresh_and_gone_afterwards() {
    let witness = Postgres::database().await;
    let name = {
        let database = Postgres::database().await;
        database
            .execute("CREATE TABLE t (n int); INSERT INTO t VALUES (1)")
            .await;
        // A pool that is still open does not keep the database.
        let pool = database.pool(2).await;
        let mut transaction = pool.begin().await.unwrap();
        sqlx::query("INSERT INTO t VALUES (2)")
            .execute(&mut *transaction)
            .await
            .unwrap();
        assert_eq!(database.idle_in_transaction().await, 1);
        assert_eq!(database.sessions().await, 1);
        drop(transaction);
        database.quiet().await;
        assert_eq!(database.idle_in_transaction().await, 0);
        database.name().to_owned()
    };
    let mut connection = witness.connect().await;
    let left: i64 = sqlx::query("SELECT count(*) FROM pg_database WHERE datname = $1")
        .bind(&name)
        .fetch_one(&mut connection)
        .await
        .unwrap()
        .get(0);
    assert_eq!(left, 0);
    connection.close().await.unwrap();
}

#[tokio::test]
async fn a_session_that_waits_for_a_lock_is_seen() {
    let database = Postgres::database().await;
    database.execute("CREATE TABLE t (n int PRIMARY KEY)").await;
    let pool = database.pool(2).await;
    let mut first = pool.begin().await.unwrap();
    sqlx::query("INSERT INTO t VALUES (1)")
        .execute(&mut *first)
        .await
        .unwrap();
    let second = tokio::spawn({
        let pool = pool.clone();
        async move { sqlx::query("INSERT INTO t VALUES (1)").execute(&pool).await }
    });
    while database.waiting_for_lock().await == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    first.commit().await.unwrap();
    assert!(
        second
            .await
            .unwrap()
            .unwrap_err()
            .as_database_error()
            .unwrap()
            .is_unique_violation()
    );
}

#[tokio::test]
async fn a_sqlite_file_is_in_write_ahead_mode_and_gone_afterwards() {
    let file = Sqlite::file().await;
    let pool = file.pool(2).await;
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(mode, "wal");
    let other = sqlx::SqlitePool::connect(&file.url()).await.unwrap();
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode")
        .fetch_one(&other)
        .await
        .unwrap();
    assert_eq!(mode, "wal");
    let patience: i64 = sqlx::query_scalar("PRAGMA busy_timeout")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(patience, 10_000);
    other.close().await;
    pool.close().await;
    let path = file.path();
    drop(file);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_mariadb_database_is_fresh_and_gone_afterwards() {
    let witness = MariaDb::database().await;
    let name = {
        let database = MariaDb::database().await;
        database.execute("CREATE TABLE t (n INT PRIMARY KEY)").await;
        // Open transactions do not keep the database.
        let pool = database.pool(2).await;
        let insert = "INSERT INTO t VALUES (2)";
        let mut first = pool.begin().await.unwrap();
        sqlx::query(insert).execute(&mut *first).await.unwrap();
        assert_eq!(database.waiting_for_lock().await, 0);
        let second = tokio::spawn(async move { sqlx::query(insert).execute(&pool).await });
        database.until_one_waits().await;
        assert_eq!(witness.waiting_for_lock().await, 0);
        first.rollback().await.unwrap();
        second.await.unwrap().unwrap();
        database.name().to_owned()
    };
    let mut connection = witness.connect().await;
    let left: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?",
    )
    .bind(&name)
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(left, 0);
    connection.close().await.unwrap();
}

#[tokio::test]
async fn a_fault_is_tied_to_a_statement_of_mariadb() {
    let database = MariaDb::database().await;
    database.execute("CREATE TABLE t (n INT)").await;
    let proxy = database.proxy();
    let pool = database.pool_through(&proxy, 1);
    let rows = async || -> i64 {
        let direct = database.pool(1).await;
        let rows = sqlx::query_scalar("SELECT COUNT(*) FROM t");
        rows.fetch_one(&direct).await.unwrap()
    };
    let insert = async || {
        let insert = sqlx::query("INSERT INTO t VALUES (?)").bind(1);
        insert.execute(&pool).await.map(drop)
    };
    insert().await.unwrap();
    proxy.clear_log();
    insert().await.unwrap();
    let seen = Statement {
        connection: 1,
        text: "INSERT INTO t VALUES (?)".into(),
        prepared: true,
    };
    assert_eq!((proxy.executed(), proxy.prepared()), (vec![seen], vec![]));
    for (fault, count) in [(Fault::CutAnswer, 3), (Fault::CutBefore, 3)] {
        let armed = proxy.on("INSERT INTO t", fault);
        insert().await.unwrap_err();
        assert!(armed.fired());
        assert_eq!(rows().await, count, "{fault:?}");
    }
    proxy.count_changed_rows();
    proxy.cut_all();
    let same = sqlx::query("UPDATE t SET n = n");
    let counted = same.execute(&database.pool_through(&proxy, 1)).await;
    assert_eq!(counted.unwrap().rows_affected(), 0);
}
