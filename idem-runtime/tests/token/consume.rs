//! Once.

use std::time::{Duration, Instant};

use idem_runtime::token::{Reason, TokenDialect};
use idem_test_support::Postgres;
use sqlx::{Connection as _, Pool};

use crate::world::{HOUR, Tokens, on_each, reason};

on_each! {
    tok_01_a_check_has_no_effect
    tok_02_of_a_hundred_parallel_consumers_one_succeeds
    tok_02_a_token_that_expires_meanwhile_is_consumed_at_most_once
    a_call_that_is_rolled_back_does_not_burn_the_token
    a_second_use_in_the_same_transaction_is_refused
    a_token_expires_by_the_clock_of_the_database
}

async fn tok_01_a_check_has_no_effect<D: TokenDialect>(pool: Pool<D>, tokens: Tokens) {
    let token = tokens.issue(&pool, HOUR).await;
    for _ in 0..3 {
        tokens.check(&pool, token.as_str()).await.unwrap();
    }
    tokens.spend(&pool, token.as_str()).await.unwrap();
    let late = tokens.check(&pool, token.as_str()).await;
    assert_eq!(reason(late), Some(Reason::Used));
    let late = tokens.spend(&pool, token.as_str()).await;
    assert_eq!(reason(late), Some(Reason::Used));
}

async fn tok_02_of_a_hundred_parallel_consumers_one_succeeds<D: TokenDialect>(
    pool: Pool<D>,
    tokens: Tokens,
) {
    let token = tokens.issue(&pool, HOUR).await;
    let tasks = (0..100).map(|_| {
        let (pool, tokens, token) = (pool.clone(), tokens.clone(), token.clone());
        tokio::spawn(async move { reason(tokens.spend(&pool, token.as_str()).await) })
    });
    let mut answers = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        answers.push(task.await.unwrap());
    }
    let accepted = answers.iter().filter(|reason| reason.is_none()).count();
    let used = answers.iter().filter(|r| **r == Some(Reason::Used)).count();
    assert_eq!((accepted, used), (1, 99));
}

async fn tok_02_a_token_that_expires_meanwhile_is_consumed_at_most_once<D: TokenDialect>(
    pool: Pool<D>,
    tokens: Tokens,
) {
    for round in 0..5 {
        let ttl = Duration::from_millis(10 + 5 * round);
        let token = tokens.issue(&pool, ttl).await;
        let end = Instant::now() + ttl;
        let tasks = (0..20).map(|n| {
            let (pool, tokens, token) = (pool.clone(), tokens.clone(), token.clone());
            tokio::spawn(async move {
                // Around the moment of the expiry.
                let at = end - Duration::from_millis(5) + Duration::from_micros(500 * n);
                tokio::time::sleep_until(at.into()).await;
                reason(tokens.spend(&pool, token.as_str()).await)
            })
        });
        let mut accepted = 0;
        for task in tasks.collect::<Vec<_>>() {
            match task.await.unwrap() {
                None => accepted += 1,
                Some(Reason::Used | Reason::Expired) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(accepted <= 1, "{accepted}");
    }
}

async fn a_call_that_is_rolled_back_does_not_burn_the_token<D: TokenDialect>(
    pool: Pool<D>,
    tokens: Tokens,
) {
    let token = tokens.issue(&pool, HOUR).await;
    for dropped in [false, true] {
        let mut tx = D::begin(&pool).await.unwrap();
        tokens.consume(&mut tx, token.as_str()).await.unwrap();
        if dropped {
            drop(tx);
        } else {
            tx.rollback().await.unwrap();
        }
        tokens.check(&pool, token.as_str()).await.unwrap();
    }
    tokens.spend(&pool, token.as_str()).await.unwrap();
}

async fn a_second_use_in_the_same_transaction_is_refused<D: TokenDialect>(
    pool: Pool<D>,
    tokens: Tokens,
) {
    let token = tokens.issue(&pool, HOUR).await;
    let mut tx = D::begin(&pool).await.unwrap();
    let used = tokens.consume(&mut tx, token.as_str()).await.unwrap();
    let again = tokens.consume(&mut tx, token.as_str()).await;
    assert_eq!(reason(again), Some(Reason::Used));
    // The refusal has left the transaction as it was.
    tx.commit().await.unwrap();
    let other = tokens.issue(&pool, HOUR).await;
    assert_ne!(tokens.spend(&pool, other.as_str()).await.unwrap(), used);
}

async fn a_token_expires_by_the_clock_of_the_database<D: TokenDialect>(
    pool: Pool<D>,
    tokens: Tokens,
) {
    let token = tokens.issue(&pool, Duration::from_millis(400)).await;
    tokens.check(&pool, token.as_str()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(450)).await;
    let late = tokens.check(&pool, token.as_str()).await;
    assert_eq!(reason(late), Some(Reason::Expired));
    let late = tokens.spend(&pool, token.as_str()).await;
    assert_eq!(reason(late), Some(Reason::Expired));
}

#[tokio::test]
async fn another_consumer_waits_for_the_end_of_the_first_transaction() {
    let database = Postgres::database().await;
    let pool = database.pool(5).await;
    let table = idem_runtime::token::TokenTable::default();
    table.migrate(&pool).await.unwrap();
    for tokens in [Tokens::signed(), Tokens::stored()] {
        for commits in [false, true] {
            let token = tokens.issue(&pool, HOUR).await;
            let mut first = pool.begin().await.unwrap();
            tokens.consume(&mut first, token.as_str()).await.unwrap();
            let second = {
                let (pool, tokens, token) = (pool.clone(), tokens.clone(), token.clone());
                tokio::spawn(async move { reason(tokens.spend(&pool, token.as_str()).await) })
            };
            while database.waiting_for_lock().await == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
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

#[tokio::test]
async fn an_older_snapshot_is_told_to_begin_again() {
    let database = Postgres::database().await;
    let pool = database.pool(5).await;
    let table = idem_runtime::token::TokenTable::default();
    table.migrate(&pool).await.unwrap();
    for tokens in [Tokens::signed(), Tokens::stored()] {
        let token = tokens.issue(&pool, HOUR).await;
        let mut conn = pool.acquire().await.unwrap();
        let begin = conn.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ");
        let mut old = begin.await.unwrap();
        sqlx::query("SELECT 1 FROM idem_token")
            .execute(&mut *old)
            .await
            .unwrap();
        tokens.spend(&pool, token.as_str()).await.unwrap();
        let late = tokens.consume(&mut old, token.as_str()).await.unwrap_err();
        assert_eq!(late.reason(), None);
        let error = late.store_error().unwrap();
        assert_eq!(error.retry(), idem_runtime::Retry::NewTransaction);
        assert!(idem_runtime::retry::Retryable::calls_for_retry(&late));
    }
}
