//! Transactions that end badly: by the time the call answers, the server has rolled them back.

use idem::{Answered, Effect, ErrorKind, Retry, observe};
use idem_test_support::{Body, Proxy};
use tokio::task::JoinSet;

use crate::{
    postgres::{
        calls::{End, effects, recorded, records, released},
        db::{Fresh, Pool},
    },
    support::{Failure, order},
};

/// No other task has run since the answer came, and the proxy has seen all that was sent before.
fn last_is_rollback(proxy: &Proxy) {
    let statements = proxy.statements();
    assert_eq!(
        statements.last().map(String::as_str),
        Some("ROLLBACK"),
        "{statements:?}"
    );
}

#[tokio::test]
async fn tx_02_the_roll_back_is_awaited_on_every_error() {
    let database = Fresh::new().await;
    let (proxy, pool) = database.proxied(1);
    let body = Body::new();
    for (no, how) in [End::Busy, End::Declined, End::Poisoned]
        .into_iter()
        .enumerate()
    {
        let no = no as u64;
        released(&pool, order(no), &body, how).await.unwrap_err();
        last_is_rollback(&proxy);
        assert_eq!(effects(&pool, no).await, 0);
    }
    assert_eq!(records(&pool).await, 0);
}

#[tokio::test]
async fn a_poisoned_transaction_is_not_taken_for_a_success() {
    let database = Fresh::new().await;
    let pool = database.pool(1).await;
    let body = Body::new();
    for _ in 0..2 {
        let answer = recorded(&pool, order(1), &body, End::Poisoned).await;
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TransactionEnded);
        assert_eq!(error.effect(), Effect::None);
    }
    assert_eq!(effects(&pool, 1).await, 0);
    assert_eq!(records(&pool).await, 0);
    recorded(&pool, order(1), &body, End::Well).await.unwrap();
}

#[idem::idempotent(key = "{no}", ttl = "1h", store = pool, tx = tx, reject)]
async fn ends_it(pool: &Pool, no: u64, sql: &'static str) -> Result<u8, Failure> {
    crate::postgres::calls::write(tx, &order(no)).await?;
    sqlx::raw_sql(sql).execute(&mut **tx).await?;
    Ok(7)
}

#[tokio::test]
async fn a_body_that_ends_the_transaction_itself_is_found_out() {
    let database = Fresh::new().await;
    let pool = database.pool(1).await;
    // A roll-back takes the reservation with it, a commit is refused by the database.
    let error = ends_it(&pool, 1, "ROLLBACK").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TransactionEnded);
    assert_eq!(error.effect(), Effect::Unknown);
    assert_eq!(effects(&pool, 1).await, 0);
    let error = ends_it(&pool, 2, "COMMIT").await.unwrap_err();
    assert!(matches!(error, Failure::Sql(_)), "{error:?}");
    assert_eq!(error.code().as_deref(), Some("23503"));
    assert_eq!(effects(&pool, 2).await, 0);
    assert_eq!(records(&pool).await, 0);
}

/// A constraint of the application's that is checked at the commit.
#[tokio::test]
async fn a_refused_commit_has_no_effect_and_is_rolled_back() {
    let database = Fresh::new().await;
    database
        .0
        .execute("ALTER TABLE effect ADD UNIQUE (cents) DEFERRABLE INITIALLY DEFERRED")
        .await;
    let (proxy, pool) = database.proxied(1);
    let body = Body::new();
    released(&pool, order(1), &body, End::Well).await.unwrap();
    proxy.clear_log();
    let (answer, seen) = observe(released(&pool, order(2), &body, End::Well)).await;
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CommitRefused);
    assert_eq!(error.effect(), Effect::None);
    // The same call would be refused again.
    assert_eq!(error.idem().retry(), Retry::Never);
    assert_eq!(error.code().as_deref(), Some("23505"));
    let text = error.to_string();
    assert!(
        text.contains("23505") && text.contains("effect_cents_key"),
        "{text}"
    );
    assert_eq!(seen.answered(), Some(Answered::Refused));
    assert_eq!(seen.refusal(), Some(ErrorKind::CommitRefused));
    // It said so itself: nothing had to be looked up.
    assert_eq!(
        proxy
            .statements()
            .iter()
            .filter(|sql| *sql == "BEGIN")
            .count(),
        1
    );
    assert_eq!(effects(&pool, 2).await, 0);
    assert_eq!(records(&pool).await, 1);
    database.0.quiet().await;
}

/// What a pooler, or a server that is going down, answers in place of the commit's own answer: it
/// says nothing about the commit, which may have held.
#[tokio::test]
async fn an_error_that_does_not_come_from_the_commit_itself_is_looked_up() {
    let database = Fresh::new().await;
    // After the commit has held as far as anybody can see, the session is ended.
    database
        .0
        .execute(
            "CREATE FUNCTION gone() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             RAISE EXCEPTION 'server conn crashed?' USING ERRCODE = '08P01'; END $$; \
             CREATE CONSTRAINT TRIGGER gone AFTER INSERT ON effect \
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION gone();",
        )
        .await;
    let (proxy, pool) = database.proxied(2);
    let body = Body::new();
    let error = released(&pool, order(1), &body, End::Well)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert_eq!(error.effect(), Effect::None);
    let begins = proxy
        .statements()
        .iter()
        .filter(|sql| *sql == "BEGIN")
        .count();
    // Once or twice more: an aborted transaction gives its lock up just after it has answered.
    assert!(begins >= 2, "it was looked up: {:?}", proxy.statements());
    assert_eq!(effects(&pool, 1).await, 0);
}

/// Nobody who waits gets an answer that was not committed: each finds out for itself.
#[tokio::test]
async fn those_who_wait_do_not_get_the_answer_of_a_refused_commit() {
    let database = Fresh::new().await;
    database
        .0
        .execute(
            "ALTER TABLE effect ADD UNIQUE (cents) DEFERRABLE INITIALLY DEFERRED; \
             INSERT INTO effect (no, cents) VALUES (1000, 500)",
        )
        .await;
    let pool = database.pool(3).await;
    let body = Body::held();
    let mut calls = JoinSet::new();
    for _ in 0..3 {
        let (pool, body) = (pool.clone(), body.clone());
        calls.spawn(async move { recorded(&pool, order(1), &body, End::Well).await });
    }
    body.started(1).await;
    body.release();
    for answer in calls.join_all().await {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::CommitRefused);
    }
    assert_eq!(body.runs(), 3);
    assert_eq!(effects(&pool, 1).await, 0);
    assert_eq!(records(&pool).await, 0);
}
