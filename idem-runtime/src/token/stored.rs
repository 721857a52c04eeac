use std::time::Duration;

use sqlx::{Pool, SqlStr, Transaction};

use super::form::{binding, lifetime, stored_id};
use super::sql::{Found, InTx, TokenDialect, TokenTable, failed};
use super::{Consumed, Reason, Token, TokenError};
use crate::engine::{Admits, InTransaction, Wanted};
use crate::key::RecordId;

/// Random tokens with a row each. The table keeps a digest: whoever reads it cannot use them.
#[derive(Clone, Debug, Default)]
pub struct StoredTokens {
    table: TokenTable,
}

impl StoredTokens {
    /// Kept in this table.
    #[must_use]
    pub fn new(table: TokenTable) -> Self {
        Self { table }
    }

    /// A new token for `subject` to do `operation` once within `ttl`, by the database's clock. It is
    /// good once the caller's transaction has committed.
    ///
    /// # Errors
    /// A `ttl` that is not valid ([`ErrorKind::InvalidTtl`](crate::ErrorKind::InvalidTtl)), or the
    /// database cannot be used.
    ///
    /// # Cancel safety
    /// A token that nobody has seen may be left; it expires.
    pub async fn issue<D: TokenDialect>(
        &self,
        tx: &mut Transaction<'_, D>,
        subject: &str,
        operation: &str,
        ttl: Duration,
    ) -> Result<Token, TokenError> {
        let ttl = i64::try_from(lifetime(ttl)?).unwrap_or(i64::MAX);
        let token = Token::random()?;
        let id = stored_id(token.as_str())?;
        let (sql, binding) = (&self.table.texts::<D>().issue, binding(subject, operation));
        D::issue(tx, sql, id, binding.as_bytes(), ttl)
            .await
            .map_err(failed::<D>)?;
        Ok(token)
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
        let id = stored_id(token)?;
        let mut conn = pool.acquire().await.map_err(failed::<D>)?;
        let sql = &self.table.texts::<D>().state;
        state::<D>(&mut conn, sql, id, binding(subject, operation)).await
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

    /// Withdraws a token that is not used, in the caller's transaction; says whether there was one. It
    /// is not good any more once that transaction has committed. A transaction that is using the token
    /// is waited for.
    ///
    /// # Errors
    /// The text is not a token, or the database cannot be used.
    ///
    /// # Cancel safety
    /// It may or may not be withdrawn in the transaction: roll it back.
    pub async fn withdraw<D: TokenDialect>(
        &self,
        tx: &mut Transaction<'_, D>,
        token: &str,
    ) -> Result<bool, TokenError> {
        let id = stored_id(token)?;
        let gone = D::undo(tx, &self.table.texts::<D>().withdraw, id).await;
        Ok(gone.map_err(failed::<D>)? == 1)
    }

    async fn consume_on<D: TokenDialect>(
        &self,
        conn: &mut D::Connection,
        token: &str,
        subject: &str,
        operation: &str,
    ) -> Result<Consumed, TokenError> {
        let (id, binding) = (stored_id(token)?, binding(subject, operation));
        let sql = &self.table.texts::<D>().take;
        let taken = D::take(&mut *conn, sql, id, binding.as_bytes()).await;
        if taken.map_err(failed::<D>)? == 1 {
            return Ok(Consumed::new(id));
        }
        state::<D>(conn, &self.table.texts::<D>().state_now, id, binding).await?;
        // Not there for the first statement and good for the second one: issued in between, which
        // nobody can have waited for.
        Err(Reason::Unknown.into())
    }
}

impl<D: TokenDialect> Admits<InTransaction<D>> for StoredTokens {
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
        let undo = self.table.texts::<D>().untake.clone();
        Ok(InTx::new(consumed.await?, undo))
    }
}

async fn state<D: TokenDialect>(
    conn: &mut D::Connection,
    sql: &SqlStr,
    id: RecordId,
    binding: RecordId,
) -> Result<(), TokenError> {
    let found = D::state(conn, sql, id).await.map_err(failed::<D>)?;
    let reason = match found {
        None => Reason::Unknown,
        Some(Found { binding: other, .. }) if other != *binding.as_bytes() => Reason::Foreign,
        Some(Found { used: true, .. }) => Reason::Used,
        Some(Found { expired: true, .. }) => Reason::Expired,
        Some(_) => return Ok(()),
    };
    Err(reason.into())
}
