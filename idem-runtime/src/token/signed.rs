use std::time::Duration;

use sqlx::{Pool, Transaction};

use super::form::lifetime;
use super::keys::{Claims, SigningKeys};
use super::sql::{InTx, Mark, TokenDialect, TokenTable, failed};
use super::{Consumed, Reason, Token, TokenError};
use crate::clock::{Clock as _, SystemClock};
use crate::engine::{Admits, InTransaction, Wanted};

/// Tokens that carry what they are good for, signed: issuing one writes nothing. A mark in the table
/// says that one is used.
///
/// The moment of expiry is set by the clock of the process that issues and judged by that of the
/// database.
#[derive(Clone, Debug)]
pub struct SignedTokens {
    table: TokenTable,
    keys: SigningKeys,
}

impl SignedTokens {
    /// Signed with these keys, marked as used in this table.
    #[must_use]
    pub fn new(table: TokenTable, keys: SigningKeys) -> Self {
        Self { table, keys }
    }

    /// A new token for `subject` to do `operation` once within `ttl`.
    ///
    /// # Errors
    /// A `ttl` that is not valid ([`ErrorKind::InvalidTtl`](crate::ErrorKind::InvalidTtl)), or no
    /// random bytes.
    pub fn issue(
        &self,
        subject: &str,
        operation: &str,
        ttl: Duration,
    ) -> Result<Token, TokenError> {
        let ttl = Duration::from_millis(lifetime(ttl)?);
        let expires = SystemClock.now().after(ttl);
        self.keys.sign(subject, operation, expires)
    }

    /// Whether the token could be consumed now. Has no effect.
    ///
    /// # Errors
    /// The token is refused, or the database cannot be asked.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn check<D: TokenDialect>(
        &self,
        pool: &Pool<D>,
        token: &str,
        subject: &str,
        operation: &str,
    ) -> Result<(), TokenError> {
        let claims = self.keys.verify(token, subject, operation)?;
        let mut conn = pool.acquire().await.map_err(failed::<D>)?;
        self.state::<D>(&mut conn, &claims).await
    }

    /// Uses the token up in the caller's transaction: exactly one transaction that does commits.
    /// Another one waits for its end and is then refused, or goes on if the first rolled back.
    ///
    /// # Errors
    /// The token is refused, or the database cannot be asked; a refusal leaves the transaction as it
    /// was. Under `REPEATABLE READ` and `SERIALIZABLE` a token that was used meanwhile is an error of
    /// the store that asks for a new transaction.
    ///
    /// # Cancel safety
    /// It may or may not be used up in the transaction: roll it back.
    pub async fn consume<D: TokenDialect>(
        &self,
        tx: &mut Transaction<'_, D>,
        token: &str,
        subject: &str,
        operation: &str,
    ) -> Result<Consumed, TokenError> {
        self.consume_on::<D>(tx, token, subject, operation).await
    }

    async fn consume_on<D: TokenDialect>(
        &self,
        conn: &mut D::Connection,
        token: &str,
        subject: &str,
        operation: &str,
    ) -> Result<Consumed, TokenError> {
        let claims = self.keys.verify(token, subject, operation)?;
        let marked = D::mark(
            &mut *conn,
            &self.table.texts::<D>().mark,
            claims.id,
            &claims.binding,
            millis(&claims),
        );
        match marked.await.map_err(failed::<D>)? {
            Mark::Made => return Ok(Consumed::new(claims.id)),
            Mark::Found => return Err(Reason::Used.into()),
            Mark::NotMade => {}
        }
        self.state::<D>(conn, &claims).await?;
        // Not used and not expired at the second look: it was in the hands of a transaction that has
        // rolled back since, or the database's clock was set back.
        Err(Reason::Expired.into())
    }

    async fn state<D: TokenDialect>(
        &self,
        conn: &mut D::Connection,
        claims: &Claims,
    ) -> Result<(), TokenError> {
        let sql = &self.table.texts::<D>().mark_state;
        let state = D::mark_state(conn, sql, claims.id, millis(claims));
        match state.await.map_err(failed::<D>)? {
            (true, _) => Err(Reason::Used.into()),
            (false, true) => Err(Reason::Expired.into()),
            (false, false) => Ok(()),
        }
    }
}

impl<D: TokenDialect> Admits<InTransaction<D>> for SignedTokens {
    type Permit = InTx;

    async fn admit(
        &self,
        conn: &mut D::Connection,
        wanted: Wanted<'_>,
    ) -> Result<InTx, TokenError> {
        let Wanted {
            token,
            subject,
            operation,
        } = wanted;
        let consumed = self.consume_on::<D>(conn, token, subject, operation);
        let undo = self.table.texts::<D>().unmark.clone();
        Ok(InTx::new(consumed.await?, undo))
    }
}

fn millis(claims: &Claims) -> i64 {
    i64::try_from(claims.expires).unwrap_or(i64::MAX)
}
