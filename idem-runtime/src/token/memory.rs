use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::form::{binding, lifetime, stored_id};
use super::{Consumed, Reason, Token, TokenError};
use crate::clock::{Clock, Moment, SystemClock};
use crate::engine::{Admits, Permit, Wanted, WithLease};
use crate::key::RecordId;

/// Tokens of this process, for tests and for services of one process whose tokens may end with it.
///
/// What has expired stays until [`MemoryTokens::purge`].
#[derive(Clone)]
pub struct MemoryTokens {
    rows: Arc<Mutex<HashMap<RecordId, Row>>>,
    clock: Arc<dyn Clock>,
}

struct Row {
    binding: RecordId,
    expires: Moment,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Good,
    Held,
    Used,
}

impl Default for MemoryTokens {
    fn default() -> Self {
        Self::with_clock(SystemClock)
    }
}

impl MemoryTokens {
    /// By another clock.
    #[must_use]
    pub fn with_clock(clock: impl Clock) -> Self {
        Self {
            rows: Arc::default(),
            clock: Arc::new(clock),
        }
    }

    /// A new token for `subject` to do `operation` once within `ttl`.
    ///
    /// # Errors
    /// A `ttl` that is not valid ([`ErrorKind::InvalidTtl`](crate::ErrorKind::InvalidTtl)).
    pub fn issue(
        &self,
        subject: &str,
        operation: &str,
        ttl: Duration,
    ) -> Result<Token, TokenError> {
        let ttl = Duration::from_millis(lifetime(ttl)?);
        let token = Token::random()?;
        let row = Row {
            binding: binding(subject, operation),
            expires: self.clock.now().after(ttl),
            state: State::Good,
        };
        self.rows().insert(stored_id(token.as_str())?, row);
        Ok(token)
    }

    /// Whether the token could be consumed now. Has no effect.
    ///
    /// # Errors
    /// The token is refused.
    pub fn check(&self, token: &str, subject: &str, operation: &str) -> Result<(), TokenError> {
        let id = stored_id(token)?;
        self.judge(self.rows().get(&id), subject, operation)
    }

    /// Uses the token up at once.
    ///
    /// # Errors
    /// The token is refused.
    pub fn consume(
        &self,
        token: &str,
        subject: &str,
        operation: &str,
    ) -> Result<Consumed, TokenError> {
        self.hold(token, subject, operation).map(Hold::consume)
    }

    /// Keeps the token for a call: used up by [`Hold::consume`] when the call has succeeded, good
    /// again when the hold is dropped.
    ///
    /// # Errors
    /// The token is refused; while it is held, with [`Reason::InUse`].
    pub fn hold(&self, token: &str, subject: &str, operation: &str) -> Result<Hold, TokenError> {
        let id = stored_id(token)?;
        let mut rows = self.rows();
        self.judge(rows.get(&id), subject, operation)?;
        if let Entry::Occupied(mut row) = rows.entry(id) {
            row.get_mut().state = State::Held;
        }
        let tokens = self.clone();
        Ok(Hold { tokens, id })
    }

    /// Withdraws the token; says whether there was one. A call that holds it goes on.
    ///
    /// # Errors
    /// The text is no token.
    pub fn withdraw(&self, token: &str) -> Result<bool, TokenError> {
        let id = stored_id(token)?;
        Ok(self.rows().remove(&id).is_some())
    }

    /// Removes what has expired; says how many. Answers depend on it only in their reason.
    pub fn purge(&self) -> usize {
        let now = self.clock.now();
        let mut rows = self.rows();
        let before = rows.len();
        rows.retain(|_, row| now < row.expires || row.state == State::Held);
        before - rows.len()
    }

    fn judge(&self, row: Option<&Row>, subject: &str, operation: &str) -> Result<(), TokenError> {
        let row = row.ok_or(Reason::Unknown)?;
        let reason = match row.state {
            _ if row.binding != binding(subject, operation) => Reason::Foreign,
            State::Used => Reason::Used,
            _ if row.expires <= self.clock.now() => Reason::Expired,
            State::Held => Reason::InUse,
            State::Good => return Ok(()),
        };
        Err(reason.into())
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<RecordId, Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, id: RecordId, state: State) {
        if let Some(row) = self.rows().get_mut(&id)
            && row.state == State::Held
        {
            row.state = state;
        }
    }
}

impl fmt::Debug for MemoryTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTokens")
            .field("len", &self.rows().len())
            .finish_non_exhaustive()
    }
}

/// A token that a running call uses.
#[derive(Debug)]
#[must_use = "a hold that is dropped gives the token back"]
pub struct Hold {
    tokens: MemoryTokens,
    id: RecordId,
}

impl Hold {
    /// The call has succeeded: the token is used.
    pub fn consume(self) -> Consumed {
        self.tokens.set(self.id, State::Used);
        Consumed::new(self.id)
    }
}

impl Admits<WithLease> for MemoryTokens {
    type Permit = Hold;

    async fn admit(&self, _by: &mut WithLease, wanted: Wanted<'_>) -> Result<Hold, TokenError> {
        self.hold(wanted.token, wanted.subject, wanted.operation)
    }
}

impl Permit<WithLease> for Hold {
    async fn use_up(self) -> Result<(), TokenError> {
        self.consume();
        Ok(())
    }

    async fn give_back(self, _by: &mut WithLease) {}
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.tokens.set(self.id, State::Good);
    }
}
