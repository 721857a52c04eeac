//! What a duplicate gets, at every isolation level.

use std::time::{Duration, Instant};

use idem_runtime::{Effect, ErrorKind, Retry};
use sqlx::mysql::{MySqlPool, MySqlTransaction};

use crate::database::Database;
use crate::service::{Body, add, note, pay, pay_and_commit, pay_or_be_refused};

const LEVELS: [&str; 3] = [
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
];

/// A transaction, with a snapshot if it has read before.
async fn begin(pool: &MySqlPool, reads: bool) -> MySqlTransaction<'static> {
    let mut tx = pool.begin().await.unwrap();
    if reads {
        read(&mut tx).await;
    }
    tx
}

async fn read(tx: &mut MySqlTransaction<'_>) {
    let read = sqlx::query("SELECT cents FROM account");
    read.fetch_all(&mut **tx).await.unwrap();
}

#[tokio::test]
async fn while_the_first_runs_a_duplicate_is_refused_at_once_and_its_transaction_lives() {
    for level in LEVELS {
        for reads in [false, true] {
            let db = Database::fresh().await;
            let pool = db.pool(2, level).await;
            let mut second = begin(&pool, reads).await;
            note(&mut second, "mine").await;
            let mut first = begin(&pool, reads).await;
            pay(&mut first, "1", 100, Body::default()).await.unwrap();

            let begun = Instant::now();
            let refused = pay_or_be_refused(&mut second, "1", 100, Body::default()).await;
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InProgress);
            assert!(begun.elapsed() < Duration::from_millis(500), "{level}");
            second.commit().await.unwrap();
            first.commit().await.unwrap();
            assert_eq!(db.number("SELECT COUNT(*) FROM audit").await, 1, "{level}");
        }
    }
}

#[tokio::test]
async fn after_the_first_committed_a_duplicate_replays_even_with_an_older_snapshot() {
    for level in LEVELS {
        for reads in [false, true] {
            let db = Database::fresh().await;
            let pool = db.pool(2, level).await;
            let mut second = begin(&pool, reads).await;
            let first = pay_and_commit(&pool, "1", 100, Body::default()).await;
            let body = Body::default();
            let again = pay(&mut second, "1", 100, body.clone()).await;
            second.commit().await.unwrap();
            assert_eq!(first.unwrap(), again.unwrap(), "{level} {reads}");
            assert_eq!((body.runs(), db.orders().await), (0, 1), "{level} {reads}");
        }
    }
}

#[tokio::test]
async fn my_03_when_the_first_rolls_back_one_of_many_that_wait_runs_and_none_deadlocks() {
    for level in LEVELS {
        for reads in [false, true] {
            let db = Database::fresh().await;
            let pool = db.pool(10, level).await;
            let body = Body::default();
            let mut first = begin(&pool, reads).await;
            pay(&mut first, "1", 100, body.clone()).await.unwrap();
            let waiting = (0..5).map(|_| {
                let (pool, body) = (pool.clone(), body.clone());
                tokio::spawn(async move {
                    let mut tx = begin(&pool, reads).await;
                    let paid = pay(&mut tx, "1", 100, body).await?;
                    tx.commit().await?;
                    Ok::<_, crate::service::PayError>(paid)
                })
            });
            let waiting = waiting.collect::<Vec<_>>();
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(body.runs(), 1);
            first.rollback().await.unwrap();
            let mut answers = Vec::new();
            for call in waiting {
                answers.push(call.await.unwrap().unwrap());
            }
            answers.dedup();
            assert_eq!(answers.len(), 1, "{level} {reads}");
            assert_eq!((body.runs(), db.orders().await), (2, 1), "{level} {reads}");
        }
    }
}

#[tokio::test]
async fn two_keys_in_opposite_order_are_refused_and_do_not_deadlock() {
    for level in LEVELS {
        let db = Database::fresh().await;
        let pool = db.pool(2, level).await;
        let (mut one, mut two) = (begin(&pool, true).await, begin(&pool, true).await);
        pay(&mut one, "a", 1, Body::default()).await.unwrap();
        pay(&mut two, "b", 1, Body::default()).await.unwrap();
        let refused = [
            pay_or_be_refused(&mut one, "b", 1, Body::default()).await,
            pay_or_be_refused(&mut two, "a", 1, Body::default()).await,
        ];
        for refused in refused {
            assert_eq!(
                refused.unwrap_err().kind(),
                ErrorKind::InProgress,
                "{level}"
            );
        }
        one.commit().await.unwrap();
        two.commit().await.unwrap();
        assert_eq!(db.orders().await, 2);
    }
}

#[tokio::test]
async fn a_replay_does_not_hold_up_first_calls_beside_it() {
    for level in LEVELS {
        let db = Database::fresh().await;
        let pool = db.pool(2, level).await;
        pay_and_commit(&pool, "0", 1, Body::default())
            .await
            .unwrap();
        let mut replays = begin(&pool, true).await;
        pay(&mut replays, "0", 1, Body::default()).await.unwrap();
        // With one row in the table every gap is a neighbour.
        for n in 1..20 {
            let mut tx = begin(&pool, true).await;
            let paid = pay_or_be_refused(&mut tx, &n.to_string(), 1, Body::default()).await;
            tx.commit().await.unwrap();
            assert!(paid.is_ok(), "{level} {n}: {paid:?}");
        }
        replays.commit().await.unwrap();
    }
}

#[tokio::test]
async fn a_changed_record_ends_the_transaction_and_nothing_more_is_sent_on_it() {
    let db = Database::fresh().await;
    let strict = "SET SESSION innodb_snapshot_isolation = ON";
    let pool = db.pool(1, strict).await;
    let mut warm_up = begin(&pool, false).await;
    pay(&mut warm_up, "0", 1, Body::default()).await.unwrap();
    warm_up.commit().await.unwrap();

    let mut second = begin(&pool, true).await;
    add(&mut second, 1).await.unwrap();
    let first = pay_and_commit(&db.pool, "1", 100, Body::default()).await;
    let body = Body::default();
    let idle = [statements(&mut second).await, statements(&mut second).await];
    let given_up = pay(&mut second, "1", 100, body.clone()).await.unwrap_err();
    let sent = statements(&mut second).await - idle[1];
    assert_eq!(sent, idle[1] - idle[0] + 1, "the insert alone");
    let given_up = given_up.idem();
    assert_eq!(given_up.kind(), ErrorKind::RetryTransaction);
    assert_eq!(given_up.retry(), Retry::NewTransaction);
    assert_eq!(given_up.effect(), Effect::None);
    second.rollback().await.unwrap();

    let mut retried = begin(&pool, true).await;
    let again = pay(&mut retried, "1", 100, body.clone()).await;
    retried.commit().await.unwrap();
    assert_eq!((first.unwrap(), body.runs()), (again.unwrap(), 0));
    assert_eq!(
        db.number("SELECT CAST(SUM(cents) AS SIGNED) FROM account")
            .await,
        0
    );
}

/// How many prepared statements this session has run, these questions among them.
async fn statements(tx: &mut MySqlTransaction<'_>) -> i64 {
    let ask = "SELECT CAST(variable_value AS SIGNED) FROM information_schema.session_status \
               WHERE variable_name = 'Com_stmt_execute'";
    let row: (i64,) = sqlx::query_as(ask).fetch_one(&mut **tx).await.unwrap();
    row.0
}
