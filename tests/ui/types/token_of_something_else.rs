use idem::token::{TokenError};
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

#[idempotent(
    key = "{user}", ttl = "1d", store = store,
    token(tokens, token, subject = user, operation = "delete")
)]
async fn delete(store: &MemoryStore, tokens: &str, user: &str, token: &str) -> Result<(), Failure> {
    Ok(())
}

fn main() {}
