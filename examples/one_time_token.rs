//! A link in a mail: opened by scanners, confirmed once by its reader.
//!
//! ```text
//! cargo run --example one_time_token
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::time::Duration;

use idem::idempotent;
use idem::token::{SignedTokens, SigningKeys, TokenError, TokenTable};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};

const DELETE: &str = "account.delete";

#[derive(Debug, thiserror::Error)]
enum DeleteError {
    #[error(transparent)]
    Idem(#[from] idem::Error),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("there are open orders")]
    OpenOrders,
}

struct Accounts {
    pool: SqlitePool,
    tokens: SignedTokens,
}

impl Accounts {
    /// The mail's link. Nothing is stored.
    fn link(&self, user: &str) -> Result<String, TokenError> {
        let token = self.tokens.issue(user, DELETE, Duration::from_secs(3600))?;
        Ok(token.into_string())
    }

    /// `GET`, also by mail scanners and link previews: shows the page with the button.
    async fn page(&self, user: &str, token: &str) -> u16 {
        match self.tokens.check(&self.pool, token, user, DELETE).await {
            Ok(()) => 200,
            Err(error) if error.reason().is_some() => 410,
            Err(_) => 503,
        }
    }

    /// `POST`: the button. A repeat of the same call is answered from its record, before it comes to
    /// the token; a call that fails is rolled back, and so is the use of its token.
    #[idempotent(
        key = "delete:{user}", ttl = "1d", store = self.pool, tx = tx,
        token(self.tokens, token, subject = user, operation = DELETE)
    )]
    async fn delete(&self, user: &str, token: &str) -> Result<u64, DeleteError> {
        let open: i64 = sqlx::query_scalar("SELECT orders FROM account WHERE name = $1")
            .bind(user.to_owned())
            .fetch_one(&mut **tx)
            .await?;
        if open > 0 {
            return Err(DeleteError::OpenOrders);
        }
        let gone = sqlx::query("DELETE FROM account WHERE name = $1")
            .bind(user.to_owned())
            .execute(&mut **tx)
            .await?;
        Ok(gone.rows_affected())
    }
}

fn refusal(error: &DeleteError) -> String {
    match error {
        // For the log; the caller sees `public()`.
        DeleteError::Token(error) => format!("{} (log: {:?})", error.public(), error.reason()),
        error => error.to_string(),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A database in memory is as long as its one connection.
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .connect("sqlite::memory:")
        .await?;
    idem::store::sqlite::migrate(&pool).await?;
    let table = TokenTable::default();
    table.migrate(&pool).await?;
    sqlx::raw_sql(
        "CREATE TABLE account (name TEXT PRIMARY KEY, orders INTEGER NOT NULL);
         INSERT INTO account VALUES ('ada', 1), ('bob', 0)",
    )
    .execute(&pool)
    .await?;
    // A real secret comes from a random number generator and the configuration.
    let keys = SigningKeys::new(1, b"thirty-two bytes for the example")?;
    let tokens = SignedTokens::new(table, keys);
    let accounts = Accounts { pool, tokens };

    let link = accounts.link("ada")?;
    for visitor in ["mail scanner", "link preview", "ada"] {
        println!("GET by {visitor}: {}", accounts.page("ada", &link).await);
    }
    if let Err(error) = accounts.delete("ada", &link).await {
        println!("POST: {}", refusal(&error));
    }
    println!("the link after that: {}", accounts.page("ada", &link).await);
    sqlx::query("UPDATE account SET orders = 0")
        .execute(&accounts.pool)
        .await?;
    println!("POST: {} deleted", accounts.delete("ada", &link).await?);
    println!(
        "POST again: {} deleted",
        accounts.delete("ada", &link).await?
    );
    println!("the link after that: {}", accounts.page("ada", &link).await);
    if let Err(error) = accounts.delete("bob", &link).await {
        println!("POST for bob: {}", refusal(&error));
    }
    Ok(())
}
