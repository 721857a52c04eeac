use idem::token::{MemoryTokens, TokenError};
use idem::{MemoryStore, idempotent};

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

#[idempotent(key = "{user}", ttl = "1d", store = store, token(tokens, token, user, operation = "delete"))]
async fn delete(store: &MemoryStore, tokens: &MemoryTokens, user: &str, token: &str) -> Result<(), Failure> {
    let _ = (store, tokens, user, token);
    Ok(())
}

fn main() {}
