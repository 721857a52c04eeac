//! The argument `token`: a token is used up with the call that succeeded, and with no other.

mod lease;
mod processes;
mod transaction;

use std::time::Duration;

use idem_macros::idempotent;
use idem_runtime::engine::{Admits, InTransaction, WithLease};
use idem_runtime::store::Store;
use idem_runtime::token::{
    MemoryTokens, Reason, RedisTokens, SignedTokens, StoredTokens, TokenDialect, TokenError,
};
use idem_test_support::Body;
use serde::{Deserialize, Serialize};
use sqlx::{Pool, Transaction};

use crate::world::{Tokens, WHAT, WHO, reason};

#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum CallError {
    #[error(transparent)]
    #[serde(skip)]
    Idem(#[from] idem_runtime::Error),
    #[error(transparent)]
    #[serde(skip)]
    Token(#[from] TokenError),
    /// Final.
    #[error("declined")]
    Declined,
}

impl CallError {
    /// Why the token was refused; anything else fails the test.
    fn reason(self) -> Reason {
        match self {
            Self::Token(error) => error.reason().unwrap_or_else(|| panic!("{error:?}")),
            other => panic!("{other:?}"),
        }
    }

    fn idem(&self) -> &idem_runtime::Error {
        match self {
            Self::Idem(error) => error,
            other => panic!("{other:?}"),
        }
    }
}

/// What the body does.
#[derive(Clone, Copy, PartialEq, Serialize)]
enum Does {
    Succeeds,
    Declines,
    Panics,
}

impl Does {
    async fn run(self, body: &Body, no: u32) -> Result<u32, CallError> {
        body.run().await;
        match self {
            Self::Succeeds => Ok(no),
            Self::Declines => Err(CallError::Declined),
            Self::Panics => panic!("on purpose"),
        }
    }
}

/// In the caller's transaction.
#[idempotent(
    crate = ::idem_runtime, scope = "callers", key = "{no}", fingerprint(no), ttl = "1h",
    store = tx, wait = "20s", record_err = all,
    token(tokens, token, subject = WHO, operation = WHAT)
)]
async fn callers<D: TokenDialect, T: Admits<InTransaction<D>> + Sync>(
    tx: &mut Transaction<'_, D>,
    tokens: &T,
    no: u32,
    token: &str,
    does: Does,
    body: &Body,
) -> Result<u32, CallError> {
    does.run(body, no).await
}

/// In a transaction of the framework's own; begun again where the database wants it.
#[idempotent(
    crate = ::idem_runtime, scope = "owned", key = "{no}", fingerprint(no), ttl = "1h",
    store = pool, tx = tx, wait = "20s", record_err = all, retry = 100,
    token(tokens, token, subject = WHO, operation = WHAT)
)]
async fn owned<D: TokenDialect, T: Admits<InTransaction<D>> + Sync>(
    pool: &Pool<D>,
    tokens: &T,
    no: u32,
    token: &str,
    does: Does,
    body: &Body,
) -> Result<u32, CallError> {
    let _ = tx;
    does.run(body, no).await
}

/// With a lease.
#[idempotent(
    crate = ::idem_runtime, scope = "leased", key = "{no}", fingerprint(no), ttl = "1h",
    store = store, wait = "20s", lease = "1s", record_err = all, on_cancel = "release",
    token(tokens, token, subject = WHO, operation = WHAT)
)]
async fn leased<S: Store, T: Admits<WithLease> + Sync>(
    store: &S,
    tokens: &T,
    no: u32,
    token: &str,
    does: Does,
    body: &Body,
) -> Result<u32, CallError> {
    does.run(body, no).await
}

/// Tokens of a database.
trait InDatabase<D: TokenDialect>: Admits<InTransaction<D>> + Clone + Send + Sync + 'static {
    fn tokens(&self) -> Tokens;
}

impl<D: TokenDialect> InDatabase<D> for SignedTokens {
    fn tokens(&self) -> Tokens {
        Tokens::Signed(self.clone())
    }
}

impl<D: TokenDialect> InDatabase<D> for StoredTokens {
    fn tokens(&self) -> Tokens {
        Tokens::Stored(self.clone())
    }
}

/// Tokens that are held.
trait Held: Admits<WithLease> + Clone + Send + Sync + 'static {
    async fn issue(&self, ttl: Duration) -> String;
    /// The reason for which it would be refused now.
    async fn refusal(&self, token: &str) -> Option<Reason>;
}

impl Held for MemoryTokens {
    async fn issue(&self, ttl: Duration) -> String {
        Self::issue(self, WHO, WHAT, ttl).unwrap().into_string()
    }

    async fn refusal(&self, token: &str) -> Option<Reason> {
        reason(self.check(token, WHO, WHAT))
    }
}

impl Held for RedisTokens {
    async fn issue(&self, ttl: Duration) -> String {
        let token = Self::issue(self, WHO, WHAT, ttl).await;
        token.unwrap().into_string()
    }

    async fn refusal(&self, token: &str) -> Option<Reason> {
        reason(self.check(token, WHO, WHAT).await)
    }
}

/// `Ok`s, and `Used` or `InUse` for all others.
async fn outcomes(
    calls: impl Iterator<Item = tokio::task::JoinHandle<Result<u32, CallError>>>,
) -> (usize, usize) {
    let calls: Vec<_> = calls.collect();
    let (mut accepted, mut refused) = (0, 0);
    for call in calls {
        match call.await.unwrap() {
            Ok(_) => accepted += 1,
            Err(error) => {
                let reason = error.reason();
                assert!(
                    matches!(reason, Reason::Used | Reason::InUse | Reason::Expired),
                    "{reason:?}"
                );
                refused += 1;
            }
        }
    }
    (accepted, refused)
}
