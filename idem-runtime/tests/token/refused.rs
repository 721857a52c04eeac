//! One text outside, the reason inside.

use std::error::Error as _;
use std::time::Duration;

use idem_runtime::ErrorKind;
use idem_runtime::token::{Reason, TokenDialect};
use sqlx::Pool;

use crate::world::{HOUR, Tokens, WHAT, WHO, on_each};

on_each! {
    every_reason_is_told_inside_and_none_outside
    ttl_03_a_lifetime_that_is_not_one_is_refused
    a_store_that_is_not_there_is_no_refusal
}

async fn every_reason_is_told_inside_and_none_outside<D: TokenDialect>(
    pool: Pool<D>,
    tokens: Tokens,
) {
    let token = tokens.issue(&pool, HOUR).await;
    let token = token.as_str();
    let gone = tokens.issue(&pool, Duration::from_millis(1)).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let used = tokens.issue(&pool, HOUR).await;
    tokens.spend(&pool, used.as_str()).await.unwrap();
    let of_the_other_kind = match tokens {
        Tokens::Signed(_) => Tokens::stored().issue(&pool, HOUR).await,
        Tokens::Stored(_) => Tokens::signed().issue(&pool, HOUR).await,
    };
    // Somewhere in the middle.
    let mut unknown = token.to_owned();
    let at = token.len() / 2;
    let other = if &token[at..=at] == "A" { "B" } else { "A" };
    unknown.replace_range(at..=at, other);

    let cases = [
        (token, WHO, "other", Reason::Foreign),
        (token, "user:2", WHAT, Reason::Foreign),
        (&unknown, WHO, WHAT, Reason::Unknown),
        (gone.as_str(), WHO, WHAT, Reason::Expired),
        (used.as_str(), WHO, WHAT, Reason::Used),
        (of_the_other_kind.as_str(), WHO, WHAT, Reason::Malformed),
        ("", WHO, WHAT, Reason::Malformed),
        ("' OR 1=1 --", WHO, WHAT, Reason::Malformed),
        (&token[1..], WHO, WHAT, Reason::Malformed),
    ];
    for (token, subject, operation, expected) in cases {
        let mut tx = D::begin(&pool).await.unwrap();
        let refused = tokens.consume_as(&mut tx, token, subject, operation).await;
        tx.commit().await.unwrap();
        let error = refused.unwrap_err();
        assert_eq!(error.reason(), Some(expected), "{token}");
        assert_eq!(error.public(), "the token is not valid");
        assert_eq!(error.to_string(), error.public());
        assert!(error.source().is_none());
    }
    // None of it has used the token up.
    tokens.spend(&pool, token).await.unwrap();
}

async fn ttl_03_a_lifetime_that_is_not_one_is_refused<D: TokenDialect>(
    pool: Pool<D>,
    tokens: Tokens,
) {
    for ttl in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let issued = match &tokens {
            Tokens::Signed(tokens) => tokens.issue(WHO, WHAT, ttl),
            Tokens::Stored(tokens) => {
                let mut tx = D::begin(&pool).await.unwrap();
                tokens.issue(&mut tx, WHO, WHAT, ttl).await
            }
        };
        let error = issued.unwrap_err();
        let kind = error.store_error().unwrap().kind();
        assert_eq!(kind, ErrorKind::InvalidTtl);
        assert!(error.to_string().contains("lifetime"), "{error}");
        assert_eq!(error.retry(), idem_runtime::Retry::Never);
    }
    let longest = tokens.issue(&pool, idem_runtime::retention::MAX_RETENTION);
    tokens.spend(&pool, longest.await.as_str()).await.unwrap();
}

async fn a_store_that_is_not_there_is_no_refusal<D: TokenDialect>(pool: Pool<D>, tokens: Tokens) {
    let token = tokens.issue(&pool, HOUR).await;
    pool.close().await;
    let error = tokens.check(&pool, token.as_str()).await.unwrap_err();
    assert_eq!(error.reason(), None);
    assert_eq!(error.to_string(), "tokens cannot be used now");
    assert!(error.source().is_some());
}

#[test]
fn a_refusal_reads_the_same_whatever_its_reason_is() {
    let texts = [
        Reason::Malformed,
        Reason::Unknown,
        Reason::Foreign,
        Reason::Expired,
        Reason::Used,
        Reason::InUse,
    ]
    .map(|reason| idem_runtime::token::TokenError::from(reason).to_string());
    assert!(texts.windows(2).all(|pair| pair[0] == pair[1]));
}
