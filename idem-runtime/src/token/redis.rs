use std::fmt;
use std::time::Duration;

use tokio::task::AbortHandle;

use super::form::{binding, lifetime, stored_id};
use super::{Consumed, Reason, Token, TokenError};
use crate::engine::{Admits, Backoff, Permit, Wanted, WithLease, detach};
use crate::key::RecordId;
use crate::protocol::Owner;
use crate::store::redis::{End, RedisStore, Said, Take};

/// How long a hold outlives the process of its call, unless it is told otherwise.
const HELD_FOR: Duration = Duration::from_secs(30);
const MIN_HELD_FOR: Duration = Duration::from_millis(100);
/// How long the end of a call tries to reach the server.
const PATIENCE: Duration = Duration::from_secs(10);

/// Random tokens in Redis or Valkey, one key each, which the server removes an hour after the token
/// has expired. The server keeps a digest: whoever reads it cannot use them.
///
/// They share connection, limit, prefix, namespace and [`wait_replicas`] with the store they are made
/// on. What a Redis can lose (a fail-over, an eviction, a restart without `appendonly`) it loses of
/// tokens too: of one that is gone, the token is refused; of a mark that is gone, **the token is good
/// again**.
///
/// [`wait_replicas`]: crate::store::redis::Builder::wait_replicas
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use idem_runtime::store::redis::RedisStore;
/// use idem_runtime::token::RedisTokens;
///
/// let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
/// let tokens = RedisTokens::new(&store);
/// let hour = Duration::from_secs(3600);
/// let token = tokens.issue("user:7", "account.delete", hour).await?;
///
/// let hold = tokens.hold(token.as_str(), "user:7", "account.delete").await?;
/// // … the business; dropped, the hold gives the token back …
/// hold.consume().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RedisTokens {
    store: RedisStore,
    held_for: Duration,
}

impl RedisTokens {
    /// Tokens on the server of `store`.
    #[must_use]
    pub fn new(store: &RedisStore) -> Self {
        Self {
            store: store.clone(),
            held_for: HELD_FOR,
        }
    }

    /// How long a token stays held when its call's process is gone (30 s): then another call may take
    /// it. A hold is renewed while its call runs. At least 100 ms are taken.
    ///
    /// Longer than the tokens are good for: a call whose process dies burns its token.
    #[must_use]
    pub fn hold_for(mut self, time: Duration) -> Self {
        self.held_for = time.max(MIN_HELD_FOR);
        self
    }

    /// A new token for `subject` to do `operation` once within `ttl`, by the server's clock.
    ///
    /// # Errors
    /// A `ttl` that is not valid ([`ErrorKind::InvalidTtl`](crate::ErrorKind::InvalidTtl)), or the
    /// server cannot be used.
    ///
    /// # Cancel safety
    /// A token that nobody has seen may be left; it expires.
    pub async fn issue(
        &self,
        subject: &str,
        operation: &str,
        ttl: Duration,
    ) -> Result<Token, TokenError> {
        let ttl = lifetime(ttl)?;
        let token = Token::random()?;
        let id = stored_id(token.as_str())?;
        let issued = self.store.issue_token(id, binding(subject, operation), ttl);
        issued.await.map_err(TokenError::store)?;
        Ok(token)
    }

    /// Whether the token could be consumed now. Has no effect.
    ///
    /// # Errors
    /// The token is refused, or the server cannot be asked.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn check(
        &self,
        token: &str,
        subject: &str,
        operation: &str,
    ) -> Result<(), TokenError> {
        let wanted = Wanted {
            token,
            subject,
            operation,
        };
        self.take(stored_id(token)?, wanted, Owner::fresh(), Take::Look)
            .await
    }

    /// Uses the token up at once.
    ///
    /// # Errors
    /// The token is refused, or the server cannot be asked: then it may be used.
    ///
    /// # Cancel safety
    /// The token may be used.
    pub async fn consume(
        &self,
        token: &str,
        subject: &str,
        operation: &str,
    ) -> Result<Consumed, TokenError> {
        let wanted = Wanted {
            token,
            subject,
            operation,
        };
        let id = stored_id(token)?;
        self.take(id, wanted, Owner::fresh(), Take::Use).await?;
        Ok(Consumed::new(id))
    }

    /// Keeps the token for a call: used up by [`RedisHold::consume`] when the call has succeeded, good
    /// again when the hold is given back or dropped. Nobody else gets it as long as this process lives
    /// and reaches the server, and for [`hold_for`](Self::hold_for) after that.
    ///
    /// # Errors
    /// The token is refused; while it is held, with [`Reason::InUse`]. Or the server cannot be asked.
    ///
    /// # Cancel safety
    /// A hold that may have been made is given back in the background, or ends by itself.
    pub async fn hold(
        &self,
        token: &str,
        subject: &str,
        operation: &str,
    ) -> Result<RedisHold, TokenError> {
        let wanted = Wanted {
            token,
            subject,
            operation,
        };
        let id = stored_id(token)?;
        // Made first: dropped without an answer, it gives back what may have been taken.
        let mut hold = RedisHold::unanswered(self.clone(), id);
        let taken = self
            .take(id, wanted, hold.owner, Take::Hold(self.held_for))
            .await;
        if let Err(refused) = &taken
            && refused.reason().is_some()
        {
            hold.on_drop = None;
        }
        taken?;
        hold.keep_up();
        Ok(hold)
    }

    /// Withdraws the token; says whether there was one. A call that holds it goes on.
    ///
    /// # Errors
    /// The text is no token, or the server cannot be asked: then it may be withdrawn.
    ///
    /// # Cancel safety
    /// The token may be withdrawn.
    pub async fn withdraw(&self, token: &str) -> Result<bool, TokenError> {
        let gone = self.store.drop_token(stored_id(token)?);
        gone.await.map_err(TokenError::store)
    }

    async fn take(
        &self,
        id: RecordId,
        wanted: Wanted<'_>,
        owner: Owner,
        take: Take,
    ) -> Result<(), TokenError> {
        let binding = binding(wanted.subject, wanted.operation);
        let said = self.store.take_token(id, binding, owner, take).await;
        accepted(said.map_err(TokenError::store)?)
    }
}

fn accepted(said: Said) -> Result<(), TokenError> {
    let reason = match said {
        Said::Good => return Ok(()),
        Said::Unknown => Reason::Unknown,
        Said::Foreign => Reason::Foreign,
        Said::Used => Reason::Used,
        Said::Expired => Reason::Expired,
        Said::InUse => Reason::InUse,
    };
    Err(reason.into())
}

/// A token that a running call uses.
#[must_use = "a hold that is dropped gives the token back"]
pub struct RedisHold {
    tokens: RedisTokens,
    id: RecordId,
    owner: Owner,
    /// What is still to be done.
    on_drop: Option<End>,
    renewal: Option<AbortHandle>,
}

impl RedisHold {
    fn unanswered(tokens: RedisTokens, id: RecordId) -> Self {
        Self {
            tokens,
            id,
            owner: Owner::fresh(),
            on_drop: Some(End::Free),
            renewal: None,
        }
    }

    /// Renews until the hold ends.
    fn keep_up(&mut self) {
        let (tokens, id, owner) = (self.tokens.clone(), self.id, self.owner);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let renewal = runtime.spawn(renew(tokens, id, owner));
            self.renewal = Some(renewal.abort_handle());
        }
    }

    /// The call has succeeded: the token is used.
    ///
    /// # Errors
    /// The server could not be reached within ten seconds: the token is good again when the hold's
    /// time is over, unless the server is reached once more in the background. Or another call has
    /// taken the token, because this one was out of reach for longer than the hold's time.
    ///
    /// # Cancel safety
    /// The token is used up in the background.
    pub async fn consume(mut self) -> Result<Consumed, TokenError> {
        self.on_drop = Some(End::Use);
        let mut backoff = Backoff::new(
            Some(PATIENCE),
            Duration::from_millis(10),
            Duration::from_secs(1),
        );
        loop {
            match self.end(End::Use).await {
                Ok(()) => return Ok(Consumed::new(self.id)),
                Err(error) if error.reason().is_some() => return Err(error),
                Err(error) => match backoff.next() {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(error),
                },
            }
        }
    }

    /// The call has failed: the token is as good as before. Dropping the hold does the same in the
    /// background.
    ///
    /// # Errors
    /// The server cannot be asked; it is tried once more in the background, and otherwise the token is
    /// free when the hold's time is over.
    ///
    /// # Cancel safety
    /// The token is given back in the background.
    pub async fn give_back(mut self) -> Result<(), TokenError> {
        self.end(End::Free).await
    }

    async fn end(&mut self, end: End) -> Result<(), TokenError> {
        let said = self.tokens.store.end_token(self.id, self.owner, end).await;
        let said = said.map_err(TokenError::store)?;
        self.on_drop = None;
        accepted(said)
    }
}

/// At the end of each third of the hold's time.
async fn renew(tokens: RedisTokens, id: RecordId, owner: Owner) {
    loop {
        tokio::time::sleep(tokens.held_for / 3).await;
        let end = End::Renew(tokens.held_for);
        if let Ok(Said::Used | Said::InUse) = tokens.store.end_token(id, owner, end).await {
            return;
        }
    }
}

impl Drop for RedisHold {
    fn drop(&mut self) {
        if let Some(renewal) = &self.renewal {
            renewal.abort();
        }
        if let Some(end) = self.on_drop {
            let (store, id, owner) = (self.tokens.store.clone(), self.id, self.owner);
            detach(async move {
                let _ = store.end_token(id, owner, end).await;
            });
        }
    }
}

impl fmt::Debug for RedisHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisHold")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Admits<WithLease> for RedisTokens {
    type Permit = RedisHold;

    async fn admit(
        &self,
        _by: &mut WithLease,
        wanted: Wanted<'_>,
    ) -> Result<RedisHold, TokenError> {
        self.hold(wanted.token, wanted.subject, wanted.operation)
            .await
    }
}

impl Permit<WithLease> for RedisHold {
    async fn use_up(self) -> Result<(), TokenError> {
        self.consume().await.map(drop)
    }

    async fn give_back(self, _by: &mut WithLease) {
        // Failing that, the hold ends by itself.
        let _ = Self::give_back(self).await;
    }
}
