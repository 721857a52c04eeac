use idem::idempotent;
use idem::token::{MemoryTokens, TokenError};
use sqlx::{SqlitePool, SqliteTransaction};

#[derive(Debug)]
struct Failure;

impl From<idem::Error> for Failure {
    fn from(_: idem::Error) -> Self {
        Self
    }
}

impl From<TokenError> for Failure {
    fn from(_: TokenError) -> Self {
        Self
    }
}

struct Accounts {
    pool: SqlitePool,
    tokens: MemoryTokens,
}

impl Accounts {
    #[idempotent(
        key = "{user}", ttl = "1d", store = self.pool, tx = tx,
        token(self.tokens, token, subject = user, operation = "delete")
    )]
    async fn delete(&self, user: &str, token: &str) -> Result<(), Failure> {
        let _ = tx;
        Ok(())
    }
}

#[idempotent(
    key = "{user}", ttl = "1d", store = tx,
    token(tokens, token, subject = user, operation = "delete")
)]
async fn delete(tx: &mut SqliteTransaction<'_>, tokens: &MemoryTokens, user: &str, token: &str) -> Result<(), Failure> {
    Ok(())
}

fn main() {}
