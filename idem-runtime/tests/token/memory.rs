//! Tokens of one process.

use std::time::Duration;

use idem_runtime::testing::clock::ManualClock;
use idem_runtime::token::{MemoryTokens, Reason};
use idem_runtime::{Effect, ErrorKind, Retry};

use crate::world::{HOUR, WHAT, WHO, reason};

#[test]
fn tok_01_a_check_has_no_effect_and_a_consumed_token_is_used() {
    let tokens = MemoryTokens::default();
    let token = tokens.issue(WHO, WHAT, HOUR).unwrap();
    for _ in 0..3 {
        tokens.check(token.as_str(), WHO, WHAT).unwrap();
    }
    let foreign = tokens.consume(token.as_str(), "user:2", WHAT);
    assert_eq!(reason(foreign), Some(Reason::Foreign));
    tokens.consume(token.as_str(), WHO, WHAT).unwrap();
    let late = tokens.check(token.as_str(), WHO, WHAT);
    assert_eq!(reason(late), Some(Reason::Used));
    let unknown = MemoryTokens::default().check(token.as_str(), WHO, WHAT);
    assert_eq!(reason(unknown), Some(Reason::Unknown));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tok_02_of_a_hundred_parallel_consumers_one_succeeds() {
    for _ in 0..50 {
        let tokens = MemoryTokens::default();
        let token = tokens.issue(WHO, WHAT, HOUR).unwrap();
        let tasks = (0..100).map(|_| {
            let (tokens, token) = (tokens.clone(), token.clone());
            tokio::spawn(async move { reason(tokens.consume(token.as_str(), WHO, WHAT)) })
        });
        let mut accepted = 0;
        for task in tasks.collect::<Vec<_>>() {
            match task.await.unwrap() {
                None => accepted += 1,
                Some(Reason::Used | Reason::InUse) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(accepted, 1);
    }
}

#[test]
fn a_call_that_failed_gives_the_token_back() {
    let tokens = MemoryTokens::default();
    let token = tokens.issue(WHO, WHAT, HOUR).unwrap();
    let hold = tokens.hold(token.as_str(), WHO, WHAT).unwrap();
    let meanwhile = tokens.consume(token.as_str(), WHO, WHAT);
    assert_eq!(reason(meanwhile), Some(Reason::InUse));
    drop(hold);
    let hold = tokens.hold(token.as_str(), WHO, WHAT).unwrap();
    hold.consume();
    let late = tokens.consume(token.as_str(), WHO, WHAT);
    assert_eq!(reason(late), Some(Reason::Used));
}

#[test]
fn a_token_expires_in_its_very_millisecond() {
    let clock = ManualClock::default();
    let tokens = MemoryTokens::with_clock(clock.clone());
    let token = tokens
        .issue(WHO, WHAT, Duration::from_millis(1500))
        .unwrap();
    clock.advance(Duration::from_millis(1499));
    tokens.check(token.as_str(), WHO, WHAT).unwrap();
    clock.advance(Duration::from_millis(1));
    let late = tokens.consume(token.as_str(), WHO, WHAT);
    assert_eq!(reason(late), Some(Reason::Expired));
    assert_eq!(tokens.purge(), 1);
    let late = tokens.consume(token.as_str(), WHO, WHAT);
    assert_eq!(reason(late), Some(Reason::Unknown));
    let none = tokens.issue(WHO, WHAT, Duration::ZERO).unwrap_err();
    assert_eq!(none.store_error().unwrap().kind(), ErrorKind::InvalidTtl);
    assert_eq!(
        none.to_string(),
        "a token cannot be issued with this lifetime"
    );
}

#[test]
fn what_has_expired_makes_room_and_the_number_is_bounded() {
    let clock = ManualClock::default();
    let tokens = MemoryTokens::with_clock(clock.clone()).capacity(3);
    let short = Duration::from_secs(1);
    let used = tokens.issue(WHO, WHAT, short).unwrap();
    tokens.consume(used.as_str(), WHO, WHAT).unwrap();
    let held = tokens.issue(WHO, WHAT, short).unwrap();
    let hold = tokens.hold(held.as_str(), WHO, WHAT).unwrap();
    let long = tokens.issue(WHO, WHAT, HOUR).unwrap();
    let full = tokens.issue(WHO, WHAT, HOUR).unwrap_err();
    assert_eq!(
        full.store_error().unwrap().kind(),
        ErrorKind::StoreExhausted
    );
    assert_eq!((full.effect(), full.reason()), (Effect::None, None));
    clock.advance(short);
    // The one that a call holds stays until it is given back.
    tokens.issue(WHO, WHAT, HOUR).unwrap();
    tokens.issue(WHO, WHAT, HOUR).unwrap_err();
    drop(hold);
    tokens.issue(WHO, WHAT, HOUR).unwrap();
    tokens.check(long.as_str(), WHO, WHAT).unwrap();
    let full = tokens.issue(WHO, WHAT, HOUR).unwrap_err();
    assert_eq!(full.retry(), Retry::Later(None));
}

/// Without a limit in reach the memory is that of the tokens that have not expired.
#[test]
fn expired_tokens_do_not_pile_up() {
    let clock = ManualClock::default();
    let tokens = MemoryTokens::with_clock(clock.clone());
    for _ in 0..20_000 {
        tokens.issue(WHO, WHAT, Duration::from_secs(1)).unwrap();
        clock.advance(Duration::from_millis(100));
    }
    let left = tokens.purge();
    assert!(left < 2_000, "{left}");
}
