use idem::token::MemoryTokens;
use idem::{MemoryStore, idempotent};

#[derive(Debug)]
struct Failure;

impl From<idem::Error> for Failure {
    fn from(_: idem::Error) -> Self {
        Self
    }
}

#[idempotent(
    key = "{user}", ttl = "1d", store = store,
    token(tokens, token, subject = user, operation = "delete")
)]
async fn delete(store: &MemoryStore, tokens: &MemoryTokens, user: &str, token: &str) -> Result<(), Failure> {
    Ok(())
}

fn main() {}
