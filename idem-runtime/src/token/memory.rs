//! Tokens of one process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::form::{binding, lifetime, stored_id};
use super::{Consumed, Reason, Token, TokenError};
use crate::clock::{Clock, Moment, SystemClock};
use crate::engine::{Admits, Permit, Wanted, WithLease};
use crate::error::{Error, ErrorKind};
use crate::key::RecordId;

/// Tokens of this process, for tests and for services of one process whose tokens may end with it.
///
/// What has expired goes when others are issued. At most [`MemoryTokens::CAPACITY`] tokens are kept,
/// unless [`capacity`](MemoryTokens::capacity) says otherwise.
#[derive(Clone)]
pub struct MemoryTokens {
    rows: Arc<Mutex<Rows>>,
    clock: Arc<dyn Clock>,
    capacity: usize,
}

#[derive(Default)]
struct Rows {
    by_id: HashMap<RecordId, Row>,
    /// As many as there may be before what has expired is looked for.
    sweep_at: usize,
}

/// What has expired is not looked for among fewer.
const FEW: usize = 1024;

impl Rows {
    /// Removes what has expired; says how many.
    fn sweep(&mut self, now: Moment) -> usize {
        let before = self.by_id.len();
        self.by_id
            .retain(|_, row| now < row.expires || row.state == State::Held);
        let left = self.by_id.len();
        // At most half of them can have expired when they are looked through again.
        self.sweep_at = left.saturating_mul(2).max(FEW);
        before - left
    }
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
            capacity: Self::CAPACITY,
        }
    }

    /// How many tokens are kept unless it is said otherwise: about a hundred megabytes.
    pub const CAPACITY: usize = 1_000_000;

    /// Keeps so many tokens, good or used, until they expire; no more are issued.
    #[must_use]
    pub fn capacity(mut self, tokens: usize) -> Self {
        self.capacity = tokens;
        self
    }

    /// A new token for `subject` to do `operation` once within `ttl`.
    ///
    /// # Errors
    /// A `ttl` that is not valid ([`ErrorKind::InvalidTtl`]), or too many tokens that have not expired
    /// ([`ErrorKind::StoreExhausted`]).
    pub fn issue(
        &self,
        subject: &str,
        operation: &str,
        ttl: Duration,
    ) -> Result<Token, TokenError> {
        let ttl = Duration::from_millis(lifetime(ttl)?);
        let token = Token::random()?;
        let now = self.clock.now();
        let row = Row {
            binding: binding(subject, operation),
            expires: now.after(ttl),
            state: State::Good,
        };
        let id = stored_id(token.as_str())?;
        let mut rows = self.rows();
        if rows.by_id.len() >= self.capacity.min(rows.sweep_at.max(FEW)) {
            rows.sweep(now);
            if rows.by_id.len() >= self.capacity {
                return Err(full(self.capacity));
            }
        }
        rows.by_id.insert(id, row);
        drop(rows);
        Ok(token)
    }

    /// Whether the token could be consumed now. Has no effect.
    ///
    /// # Errors
    /// The token is refused.
    pub fn check(&self, token: &str, subject: &str, operation: &str) -> Result<(), TokenError> {
        let id = stored_id(token)?;
        self.judge(self.rows().by_id.get(&id), subject, operation)
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
        self.judge(rows.by_id.get(&id), subject, operation)?;
        if let Some(row) = rows.by_id.get_mut(&id) {
            row.state = State::Held;
        }
        drop(rows);
        let tokens = self.clone();
        Ok(Hold { tokens, id })
    }

    /// Withdraws the token; says whether there was one. A call that holds it goes on.
    ///
    /// # Errors
    /// The text is no token.
    pub fn withdraw(&self, token: &str) -> Result<bool, TokenError> {
        let id = stored_id(token)?;
        Ok(self.rows().by_id.remove(&id).is_some())
    }

    /// Removes what has expired now; says how many. Answers depend on it only in their reason.
    pub fn purge(&self) -> usize {
        self.rows().sweep(self.clock.now())
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

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, id: RecordId, state: State) {
        if let Some(row) = self.rows().by_id.get_mut(&id)
            && row.state == State::Held
        {
            row.state = state;
        }
    }
}

impl fmt::Debug for MemoryTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTokens")
            .field("len", &self.rows().by_id.len())
            .finish_non_exhaustive()
    }
}

fn full(capacity: usize) -> TokenError {
    TokenError::store(
        Error::new(ErrorKind::StoreExhausted)
            .detail(format!("{capacity} tokens in memory have not expired")),
    )
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
