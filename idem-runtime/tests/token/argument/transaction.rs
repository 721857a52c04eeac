//! In a transaction, on each database, with both kinds of token.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use idem_macros::idempotent;
use idem_runtime::engine::{Admits, InTransaction};
use idem_runtime::observe::{Answered, observe};
use idem_runtime::token::{Reason, TokenDialect};
use idem_test_support::Body;
use idem_test_support::poll::drop_after;
use sqlx::Pool;

use super::{CallError, Does, InDatabase, callers, outcomes, owned};
use crate::world::{HOUR, WHAT, WHO, reason};

macro_rules! on_each {
    ($($test:ident)*) => {
        on_each!(@ signed_on_postgres, signed, postgres, Postgres, database, 20: $($test)*);
        on_each!(@ stored_on_postgres, stored, postgres, Postgres, database, 20: $($test)*);
        on_each!(@ signed_on_mariadb, signed, mysql, MariaDb, database, 20: $($test)*);
        on_each!(@ stored_on_mariadb, stored, mysql, MariaDb, database, 20: $($test)*);
        on_each!(@ signed_on_sqlite, signed, sqlite, Sqlite, file, 4: $($test)*);
        on_each!(@ stored_on_sqlite, stored, sqlite, Sqlite, file, 4: $($test)*);
    };
    (@ $module:ident, $kind:ident, $store:ident, $db:ident, $make:ident, $size:literal: $($test:ident)*) => {
        mod $module { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let keep = idem_test_support::$db::$make().await;
                let pool = keep.pool($size).await;
                idem_runtime::store::$store::migrate(&pool).await.unwrap();
                let table = idem_runtime::token::TokenTable::default();
                table.migrate(&pool).await.unwrap();
                match $crate::world::Tokens::$kind() {
                    $crate::world::Tokens::Signed(tokens) => super::$test(pool, tokens).await,
                    $crate::world::Tokens::Stored(tokens) => super::$test(pool, tokens).await,
                }
            }
        )* }
    };
}

on_each! {
    tok_01_three_gets_and_a_post
    tok_02_of_a_hundred_calls_with_one_token_one_runs
    tok_02_of_calls_around_the_expiry_at_most_one_runs
    equal_calls_replay_and_use_one_token
    a_declined_call_leaves_the_token_good
    a_swallowed_error_leaves_the_token_good
    a_panic_leaves_the_token_good
    a_call_dropped_anywhere_can_be_repeated_with_its_token
    a_refusal_is_released_and_never_recorded
    the_backstop_answers_before_the_token_is_asked
}

async fn issue<D: TokenDialect>(pool: &Pool<D>, tokens: &impl InDatabase<D>) -> String {
    tokens.tokens().issue(pool, HOUR).await.into_string()
}

async fn refusal<D: TokenDialect>(
    pool: &Pool<D>,
    tokens: &impl InDatabase<D>,
    token: &str,
) -> Option<Reason> {
    reason(tokens.tokens().check(pool, token).await)
}

async fn tok_01_three_gets_and_a_post<D: TokenDialect, T: InDatabase<D>>(pool: Pool<D>, tokens: T) {
    let (token, body) = (issue(&pool, &tokens).await, Body::new());
    for _ in 0..3 {
        assert_eq!(refusal(&pool, &tokens, &token).await, None);
    }
    let paid = owned(&pool, &tokens, 1, &token, Does::Succeeds, &body).await;
    assert_eq!(paid.unwrap(), 1);
    assert_eq!(refusal(&pool, &tokens, &token).await, Some(Reason::Used));
}

async fn tok_02_of_a_hundred_calls_with_one_token_one_runs<D: TokenDialect, T: InDatabase<D>>(
    pool: Pool<D>,
    tokens: T,
) {
    let token = issue(&pool, &tokens).await;
    let calls = (0..100).map(|no| {
        let (pool, tokens, token) = (pool.clone(), tokens.clone(), token.clone());
        tokio::spawn(async move {
            owned(&pool, &tokens, no, &token, Does::Succeeds, &Body::new()).await
        })
    });
    assert_eq!(outcomes(calls).await, (1, 99));
}

async fn tok_02_of_calls_around_the_expiry_at_most_one_runs<D: TokenDialect, T: InDatabase<D>>(
    pool: Pool<D>,
    tokens: T,
) {
    for round in 0..5_u32 {
        let ttl = Duration::from_millis(u64::from(10 + 5 * round));
        let token = tokens.tokens().issue(&pool, ttl).await.into_string();
        let end = Instant::now() + ttl;
        let calls = (0..20).map(|n| {
            let (pool, tokens, token) = (pool.clone(), tokens.clone(), token.clone());
            tokio::spawn(async move {
                let at = end - Duration::from_millis(5) + Duration::from_micros(500 * u64::from(n));
                tokio::time::sleep_until(at.into()).await;
                let no = round * 100 + n;
                owned(&pool, &tokens, no, &token, Does::Succeeds, &Body::new()).await
            })
        });
        let (accepted, refused) = outcomes(calls).await;
        assert!(accepted <= 1, "{accepted}");
        assert_eq!(accepted + refused, 20);
    }
}

async fn equal_calls_replay_and_use_one_token<D: TokenDialect, T: InDatabase<D>>(
    pool: Pool<D>,
    tokens: T,
) {
    let (token, body) = (issue(&pool, &tokens).await, Body::new());
    let calls = (0..20).map(|_| {
        let (pool, tokens, token, body) =
            (pool.clone(), tokens.clone(), token.clone(), body.clone());
        tokio::spawn(async move { owned(&pool, &tokens, 7, &token, Does::Succeeds, &body).await })
    });
    assert_eq!(outcomes(calls).await, (20, 0));
    assert_eq!(body.runs(), 1);

    let token = issue(&pool, &tokens).await;
    for repeat in [false, true] {
        let mut tx = D::begin(&pool).await.unwrap();
        let call = callers(&mut tx, &tokens, 7, &token, Does::Succeeds, &body);
        let (answer, seen) = observe(call).await;
        tx.commit().await.unwrap();
        assert_eq!((answer.unwrap(), seen.replayed()), (7, repeat));
    }
    assert_eq!(refusal(&pool, &tokens, &token).await, Some(Reason::Used));
    let other = owned(&pool, &tokens, 8, &token, Does::Succeeds, &body).await;
    assert_eq!(other.unwrap_err().reason(), Reason::Used);
    assert_eq!(body.runs(), 2);
}

/// Its error is final and recorded, and still no success.
async fn a_declined_call_leaves_the_token_good<D: TokenDialect, T: InDatabase<D>>(
    pool: Pool<D>,
    tokens: T,
) {
    let (token, body) = (issue(&pool, &tokens).await, Body::new());
    for repeat in [false, true] {
        let call = owned(&pool, &tokens, 1, &token, Does::Declines, &body);
        let (declined, seen) = observe(call).await;
        assert!(matches!(declined, Err(CallError::Declined)), "{declined:?}");
        assert_eq!(seen.replayed(), repeat);
        assert_eq!(refusal(&pool, &tokens, &token).await, None);
    }
    let paid = owned(&pool, &tokens, 2, &token, Does::Succeeds, &body).await;
    assert_eq!(paid.unwrap(), 2);
    assert_eq!(refusal(&pool, &tokens, &token).await, Some(Reason::Used));
}

/// A caller commits its transaction although the call in it has failed.
async fn a_swallowed_error_leaves_the_token_good<D: TokenDialect, T: InDatabase<D>>(
    pool: Pool<D>,
    tokens: T,
) {
    let (token, body) = (issue(&pool, &tokens).await, Body::new());
    for commits in [false, true] {
        let mut tx = D::begin(&pool).await.unwrap();
        let call = callers(&mut tx, &tokens, 1, &token, Does::Declines, &body);
        assert!(matches!(call.await, Err(CallError::Declined)));
        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(refusal(&pool, &tokens, &token).await, None);
    }
    // In the very transaction in which another call has failed.
    let mut tx = D::begin(&pool).await.unwrap();
    let declined = callers(&mut tx, &tokens, 2, &token, Does::Declines, &body).await;
    assert!(matches!(declined, Err(CallError::Declined)));
    let paid = callers(&mut tx, &tokens, 3, &token, Does::Succeeds, &body).await;
    assert_eq!(paid.unwrap(), 3);
    tx.commit().await.unwrap();
    assert_eq!(refusal(&pool, &tokens, &token).await, Some(Reason::Used));
}

async fn a_panic_leaves_the_token_good<D: TokenDialect, T: InDatabase<D>>(
    pool: Pool<D>,
    tokens: T,
) {
    let (token, body) = (issue(&pool, &tokens).await, Body::new());
    let call = {
        let (pool, tokens, token, body) =
            (pool.clone(), tokens.clone(), token.clone(), body.clone());
        tokio::spawn(async move { owned(&pool, &tokens, 1, &token, Does::Panics, &body).await })
    };
    assert!(call.await.unwrap_err().is_panic());
    let paid = owned(&pool, &tokens, 2, &token, Does::Succeeds, &body).await;
    assert_eq!(paid.unwrap(), 2);
}

async fn a_call_dropped_anywhere_can_be_repeated_with_its_token<
    D: TokenDialect,
    T: InDatabase<D>,
>(
    pool: Pool<D>,
    tokens: T,
) {
    let mut ended = false;
    for polls in 1..200 {
        let (token, body) = (issue(&pool, &tokens).await, Body::new());
        let no = u32::try_from(polls).unwrap();
        let call = owned(&pool, &tokens, no, &token, Does::Succeeds, &body);
        ended = drop_after(call, polls).await.is_some();
        // Either nothing of it is left, or it is answered: its token never stands in its way.
        let again = owned(&pool, &tokens, no, &token, Does::Succeeds, &body).await;
        assert_eq!(again.unwrap(), no, "after {polls} polls");
        assert_eq!(refusal(&pool, &tokens, &token).await, Some(Reason::Used));
        if ended {
            break;
        }
    }
    assert!(ended, "the call never came to its end");
}

async fn a_refusal_is_released_and_never_recorded<D: TokenDialect, T: InDatabase<D>>(
    pool: Pool<D>,
    tokens: T,
) {
    let (token, body) = (issue(&pool, &tokens).await, Body::new());
    for _ in 0..2 {
        let (refused, seen) =
            observe(owned(&pool, &tokens, 1, "nonsense", Does::Succeeds, &body)).await;
        assert_eq!(refused.unwrap_err().reason(), Reason::Malformed);
        assert_eq!(seen.answered(), Some(Answered::FirstRun));

        let mut tx = D::begin(&pool).await.unwrap();
        let refused = callers(&mut tx, &tokens, 1, "nonsense", Does::Succeeds, &body).await;
        assert_eq!(refused.unwrap_err().reason(), Reason::Malformed);
        tx.commit().await.unwrap();
    }
    assert_eq!(body.runs(), 0);
    let paid = owned(&pool, &tokens, 1, &token, Does::Succeeds, &body).await;
    assert_eq!(paid.unwrap(), 1);
}

/// What the backstop knows, `0` for nothing.
async fn known(asked: &AtomicU32) -> Result<Option<u32>, CallError> {
    let known = asked.load(Ordering::Relaxed);
    Ok((known > 0).then_some(known))
}

#[idempotent(
    crate = ::idem_runtime, scope = "backstop", key = "{no}", fingerprint(no), ttl = "1h",
    store = pool, tx = tx, backstop = known(orders),
    token = "tokens, &token, subject = WHO.to_owned(), operation = WHAT"
)]
async fn with_backstop<D: TokenDialect, T: Admits<InTransaction<D>> + Sync>(
    pool: &Pool<D>,
    tokens: &T,
    no: u32,
    token: String,
    orders: &AtomicU32,
) -> Result<u32, CallError> {
    let _ = tx;
    Ok(no)
}

async fn the_backstop_answers_before_the_token_is_asked<D: TokenDialect, T: InDatabase<D>>(
    pool: Pool<D>,
    tokens: T,
) {
    let (token, orders) = (issue(&pool, &tokens).await, AtomicU32::new(44));
    let call = with_backstop(&pool, &tokens, 1, "nonsense".to_owned(), &orders);
    assert_eq!(call.await.unwrap(), 44);
    orders.store(0, Ordering::Relaxed);
    let call = with_backstop(&pool, &tokens, 2, "nonsense".to_owned(), &orders);
    assert_eq!(call.await.unwrap_err().reason(), Reason::Malformed);
    let call = with_backstop(&pool, &tokens, 2, token.clone(), &orders);
    assert_eq!(call.await.unwrap(), 2);
    assert_eq!(refusal(&pool, &tokens, &token).await, Some(Reason::Used));
}
