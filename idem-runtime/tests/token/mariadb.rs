//! Snapshots, locks and counts of rows, as MySQL and MariaDB have them.

use idem_runtime::retry::Retryable;
use idem_runtime::token::{Reason, TokenTable};
use idem_test_support::{MariaDb, MariaDbDatabase};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{AssertSqlSafe, Connection as _, MySqlPool};

use crate::world::{HOUR, Tokens, reason};

async fn database() -> (MariaDbDatabase, MySqlPool) {
    let database = MariaDb::database().await;
    let pool = database.pool(8).await;
    TokenTable::default().migrate(&pool).await.unwrap();
    (database, pool)
}

#[tokio::test]
async fn another_consumer_waits_for_the_end_of_the_first_transaction() {
    let (database, pool) = database().await;
    for tokens in [Tokens::signed(), Tokens::stored()] {
        for commits in [false, true] {
            let token = tokens.issue(&pool, HOUR).await;
            let mut first = pool.begin().await.unwrap();
            tokens.consume(&mut first, token.as_str()).await.unwrap();
            let second = {
                let (pool, tokens, token) = (pool.clone(), tokens.clone(), token.clone());
                tokio::spawn(async move { reason(tokens.spend(&pool, token.as_str()).await) })
            };
            database.until_one_waits().await;
            if commits {
                first.commit().await.unwrap();
            } else {
                first.rollback().await.unwrap();
            }
            let expected = commits.then_some(Reason::Used);
            assert_eq!(second.await.unwrap(), expected);
        }
    }
}

/// Those that wait for the same mark are given up but for one (1213); they begin again.
#[tokio::test]
async fn of_those_that_wait_when_the_first_rolls_back_one_consumes() {
    let (database, pool) = database().await;
    for tokens in [Tokens::signed(), Tokens::stored()] {
        let token = tokens.issue(&pool, HOUR).await;
        let mut first = pool.begin().await.unwrap();
        tokens.consume(&mut first, token.as_str()).await.unwrap();
        let waiting = (0..4).map(|_| {
            let (pool, tokens, token) = (pool.clone(), tokens.clone(), token.clone());
            tokio::spawn(async move {
                loop {
                    let mut tx = pool.begin().await.unwrap();
                    match tokens.consume(&mut tx, token.as_str()).await {
                        Err(error) if error.calls_for_retry() => tx.rollback().await.unwrap(),
                        answer => {
                            tx.commit().await.unwrap();
                            return reason(answer);
                        }
                    }
                }
            })
        });
        let waiting = waiting.collect::<Vec<_>>();
        while database.waiting_for_lock().await < 4 {
            assert!(!waiting.iter().any(tokio::task::JoinHandle::is_finished));
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        first.rollback().await.unwrap();
        let mut answers = Vec::new();
        for task in waiting {
            answers.push(task.await.unwrap());
        }
        answers.sort_by_key(Option::is_some);
        let used = Some(Reason::Used);
        assert_eq!(answers, [None, used, used, used]);
    }
}

/// Begun before the token was used: told so, or where the server does not let it (1020) to begin again.
#[tokio::test]
async fn an_older_snapshot_does_not_consume_again() {
    let (_database, pool) = database().await;
    for tokens in [Tokens::signed(), Tokens::stored()] {
        for isolates in [false, true] {
            for level in ["REPEATABLE READ", "SERIALIZABLE", "READ COMMITTED"] {
                let token = tokens.issue(&pool, HOUR).await;
                let mut conn = pool.acquire().await.unwrap();
                let set = format!(
                    "SET SESSION innodb_snapshot_isolation = {isolates}; \
                     SET SESSION TRANSACTION ISOLATION LEVEL {level}"
                );
                let set = sqlx::raw_sql(AssertSqlSafe(set));
                set.execute(&mut *conn).await.unwrap();
                let mut old = conn.begin().await.unwrap();
                // Another table: in SERIALIZABLE a look at this one would lock it.
                sqlx::query("SELECT 1 FROM idem_token_schema")
                    .execute(&mut *old)
                    .await
                    .unwrap();
                tokens.spend(&pool, token.as_str()).await.unwrap();
                let late = tokens.consume(&mut old, token.as_str()).await.unwrap_err();
                let told = late.reason() == Some(Reason::Used);
                assert!(
                    told || isolates && late.calls_for_retry(),
                    "{level}: {late:?}"
                );
                old.rollback().await.unwrap();
                conn.close().await.unwrap();
            }
        }
    }
}

/// A lock wait that times out (1205) asks for a new transaction.
#[tokio::test]
async fn my_03_a_lock_wait_calls_for_a_retry() {
    let (_database, pool) = database().await;
    for tokens in [Tokens::signed(), Tokens::stored()] {
        let token = tokens.issue(&pool, HOUR).await;
        let mut first = pool.begin().await.unwrap();
        tokens.consume(&mut first, token.as_str()).await.unwrap();
        let mut second = pool.begin().await.unwrap();
        sqlx::query("SET SESSION innodb_lock_wait_timeout = 1")
            .execute(&mut *second)
            .await
            .unwrap();
        let waited = tokens.consume(&mut second, token.as_str()).await;
        assert!(waited.unwrap_err().calls_for_retry());
        second.rollback().await.unwrap();
        first.rollback().await.unwrap();
        tokens.spend(&pool, token.as_str()).await.unwrap();
    }
}

#[tokio::test]
async fn my_02_it_does_not_matter_what_the_connection_counts() {
    let (database, pool) = database().await;
    let proxy = database.proxy();
    proxy.count_changed_rows();
    let changed = MySqlPoolOptions::new().max_connections(2);
    let changed = changed.connect_with(database.options_through(&proxy));
    let changed = changed.await.unwrap();
    for (pool, count) in [(pool, 1), (changed, 0)] {
        for tokens in [Tokens::signed(), Tokens::stored()] {
            sqlx::query("DELETE FROM idem_token")
                .execute(&pool)
                .await
                .unwrap();
            let token = tokens.issue(&pool, HOUR).await;
            tokens.spend(&pool, token.as_str()).await.unwrap();
            let same = sqlx::query("UPDATE idem_token SET binding = binding");
            assert_eq!(same.execute(&pool).await.unwrap().rows_affected(), count);
            let late = tokens.spend(&pool, token.as_str()).await;
            assert_eq!(reason(late), Some(Reason::Used));
            let late = tokens.check(&pool, token.as_str()).await;
            assert_eq!(reason(late), Some(Reason::Used));
        }
    }
}
