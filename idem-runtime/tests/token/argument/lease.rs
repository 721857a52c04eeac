//! With a lease: the token is held while the body runs.

use std::time::{Duration, Instant};

use idem_runtime::observe::observe;
use idem_runtime::store::Store;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::token::{MemoryTokens, Reason, RedisTokens};
use idem_runtime::{Effect, ErrorKind};
use idem_test_support::poll::drop_after;
use idem_test_support::{Body, RedisServer};

use super::{CallError, Does, Held, leased, outcomes};
use crate::redis::{eventually, store};
use crate::world::{HOUR, WHAT, WHO};

macro_rules! on_each {
    ($($test:ident)*) => {
        mod memory { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(super::MemoryStore::new(), super::MemoryTokens::default()).await;
            }
        )* }
        mod redis { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let store = super::store().await;
                let tokens = super::RedisTokens::new(&store);
                super::$test(store, tokens).await;
            }
        )* }
        mod redis_beside_another_store { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let tokens = super::RedisTokens::new(&super::store().await);
                super::$test(super::MemoryStore::new(), tokens).await;
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
    a_panic_leaves_the_token_good
    a_call_dropped_anywhere_can_be_repeated_with_its_token
    a_refusal_is_released_and_never_recorded
}

async fn tok_01_three_gets_and_a_post<S: Store, T: Held>(store: S, tokens: T) {
    let (token, body) = (tokens.issue(HOUR).await, Body::new());
    for _ in 0..3 {
        assert_eq!(tokens.refusal(&token).await, None);
    }
    let paid = leased(&store, &tokens, 1, &token, Does::Succeeds, &body).await;
    assert_eq!(paid.unwrap(), 1);
    assert_eq!(tokens.refusal(&token).await, Some(Reason::Used));
}

async fn tok_02_of_a_hundred_calls_with_one_token_one_runs<S: Store, T: Held>(store: S, tokens: T) {
    let (token, body) = (tokens.issue(HOUR).await, Body::new());
    let calls = (0..100).map(|no| {
        let (store, tokens, token, body) =
            (store.clone(), tokens.clone(), token.clone(), body.clone());
        tokio::spawn(
            async move { leased(&store, &tokens, no, &token, Does::Succeeds, &body).await },
        )
    });
    assert_eq!(outcomes(calls).await, (1, 99));
    assert_eq!(body.runs(), 1);
}

async fn tok_02_of_calls_around_the_expiry_at_most_one_runs<S: Store, T: Held>(
    store: S,
    tokens: T,
) {
    for round in 0..5_u32 {
        let ttl = Duration::from_millis(u64::from(10 + 5 * round));
        let (token, body) = (tokens.issue(ttl).await, Body::new());
        let end = Instant::now() + ttl;
        let calls = (0..20).map(|n| {
            let (store, tokens, token, body) =
                (store.clone(), tokens.clone(), token.clone(), body.clone());
            tokio::spawn(async move {
                let at = end - Duration::from_millis(5) + Duration::from_micros(500 * u64::from(n));
                tokio::time::sleep_until(at.into()).await;
                let no = round * 100 + n;
                leased(&store, &tokens, no, &token, Does::Succeeds, &body).await
            })
        });
        let (accepted, refused) = outcomes(calls).await;
        assert!(accepted <= 1, "{accepted}");
        assert_eq!((accepted + refused, body.runs()), (20, accepted));
    }
}

async fn equal_calls_replay_and_use_one_token<S: Store, T: Held>(store: S, tokens: T) {
    let (token, body) = (tokens.issue(HOUR).await, Body::new());
    let calls = (0..20).map(|_| {
        let (store, tokens, token, body) =
            (store.clone(), tokens.clone(), token.clone(), body.clone());
        tokio::spawn(async move { leased(&store, &tokens, 7, &token, Does::Succeeds, &body).await })
    });
    assert_eq!(outcomes(calls).await, (20, 0));
    assert_eq!(body.runs(), 1);
    let other = leased(&store, &tokens, 8, &token, Does::Succeeds, &body).await;
    assert_eq!(other.unwrap_err().reason(), Reason::Used);
    assert_eq!(body.runs(), 1);
}

async fn a_declined_call_leaves_the_token_good<S: Store, T: Held>(store: S, tokens: T) {
    let (token, body) = (tokens.issue(HOUR).await, Body::new());
    for repeat in [false, true] {
        let call = leased(&store, &tokens, 1, &token, Does::Declines, &body);
        let (declined, seen) = observe(call).await;
        assert!(matches!(declined, Err(CallError::Declined)), "{declined:?}");
        assert_eq!(seen.replayed(), repeat);
        assert_eq!(tokens.refusal(&token).await, None);
    }
    let paid = leased(&store, &tokens, 2, &token, Does::Succeeds, &body).await;
    assert_eq!(paid.unwrap(), 2);
    assert_eq!(tokens.refusal(&token).await, Some(Reason::Used));
}

async fn a_panic_leaves_the_token_good<S: Store, T: Held>(store: S, tokens: T) {
    let (token, body) = (tokens.issue(HOUR).await, Body::new());
    let call = {
        let (store, tokens, token, body) =
            (store.clone(), tokens.clone(), token.clone(), body.clone());
        tokio::spawn(async move { leased(&store, &tokens, 1, &token, Does::Panics, &body).await })
    };
    assert!(call.await.unwrap_err().is_panic());
    // Given back in the background.
    eventually(async || tokens.refusal(&token).await.is_none()).await;
    let paid = leased(&store, &tokens, 2, &token, Does::Succeeds, &body).await;
    assert_eq!(paid.unwrap(), 2);
}

async fn a_call_dropped_anywhere_can_be_repeated_with_its_token<S: Store, T: Held>(
    store: S,
    tokens: T,
) {
    let mut ended = false;
    for polls in 1..200 {
        let (token, body) = (tokens.issue(HOUR).await, Body::new());
        let no = u32::try_from(polls).unwrap();
        let call = leased(&store, &tokens, no, &token, Does::Succeeds, &body);
        ended = drop_after(call, polls).await.is_some();
        if ended {
            break;
        }
        // In the background it is given back if the body had not ended, and used up if it had.
        eventually(async || tokens.refusal(&token).await != Some(Reason::InUse)).await;
        let again = leased(&store, &tokens, no, &token, Does::Succeeds, &body).await;
        match again {
            Ok(answer) => assert_eq!(answer, no),
            // Used up and not recorded: never a second run.
            Err(error) => {
                assert_eq!(error.reason(), Reason::Used, "after {polls} polls");
                assert_eq!(body.runs(), 1);
            }
        }
        assert_eq!(tokens.refusal(&token).await, Some(Reason::Used));
    }
    assert!(ended, "the call never came to its end");
}

async fn a_refusal_is_released_and_never_recorded<S: Store, T: Held>(store: S, tokens: T) {
    let (token, body) = (tokens.issue(HOUR).await, Body::new());
    for _ in 0..2 {
        let refused = leased(&store, &tokens, 1, "nonsense", Does::Succeeds, &body).await;
        assert_eq!(refused.unwrap_err().reason(), Reason::Malformed);
    }
    assert_eq!(body.runs(), 0);
    let paid = leased(&store, &tokens, 1, &token, Does::Succeeds, &body).await;
    assert_eq!(paid.unwrap(), 1);
}

/// A call that runs longer than the hold's time keeps its token.
#[tokio::test]
async fn a_long_call_keeps_its_token() {
    let tokens = RedisTokens::new(&store().await).hold_for(Duration::from_millis(300));
    let (token, body) = (Held::issue(&tokens, HOUR).await, Body::held());
    let store = MemoryStore::new();
    let long = {
        let (store, tokens, token, body) =
            (store.clone(), tokens.clone(), token.clone(), body.clone());
        tokio::spawn(async move { leased(&store, &tokens, 1, &token, Does::Succeeds, &body).await })
    };
    body.started(1).await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        let other = leased(&store, &tokens, 2, &token, Does::Succeeds, &body).await;
        assert_eq!(other.unwrap_err().reason(), Reason::InUse);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    body.release();
    assert_eq!(long.await.unwrap().unwrap(), 1);
    assert_eq!(tokens.refusal(&token).await, Some(Reason::Used));
}

/// The effect is done and the server of the tokens is gone: said, and recorded all the same.
#[tokio::test]
async fn a_token_that_cannot_be_marked_is_no_silent_success() {
    let mut server = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let beside = RedisStore::connect(&server.url()).await.unwrap();
    let tokens = RedisTokens::new(&beside).hold_for(Duration::from_millis(200));
    let (token, body) = (Held::issue(&tokens, HOUR).await, Body::held());
    let store = MemoryStore::new();
    let call = {
        let (store, tokens, token, body) =
            (store.clone(), tokens.clone(), token.clone(), body.clone());
        tokio::spawn(async move { leased(&store, &tokens, 1, &token, Does::Succeeds, &body).await })
    };
    body.started(1).await;
    server.kill9();
    body.release();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.idem().kind(), ErrorKind::EffectDoneNotRecorded);
    assert_eq!(error.idem().effect(), Effect::Done);
    assert_eq!(error.idem().unrecorded(), Some(1));
    let again = leased(&store, &tokens, 1, &token, Does::Succeeds, &body).await;
    assert_eq!((again.unwrap(), body.runs()), (1, 1));
    server.restart();
}

/// Another call has taken the token meanwhile (the hold was lost): said as well.
#[tokio::test]
async fn a_token_that_another_call_has_used_meanwhile_is_no_silent_success() {
    let beside = store().await;
    let tokens = RedisTokens::new(&beside);
    let (token, body) = (Held::issue(&tokens, HOUR).await, Body::held());
    let store = MemoryStore::new();
    let call = {
        let (store, tokens, token, body) =
            (store.clone(), tokens.clone(), token.clone(), body.clone());
        tokio::spawn(async move { leased(&store, &tokens, 1, &token, Does::Succeeds, &body).await })
    };
    body.started(1).await;
    crate::redis::lose_hold(&beside).await;
    tokens.consume(&token, WHO, WHAT).await.unwrap();
    body.release();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.idem().effect(), Effect::Done);
    assert_eq!(error.idem().kind(), ErrorKind::EffectDoneNotRecorded);
}
