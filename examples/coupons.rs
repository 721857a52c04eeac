//! A coupon is redeemed once a user and so many times in all.
//!
//! Four attacks, one layer for each: the key answers a form that is sent twice, the unique index the
//! second tab, the counter all the other users, the one-time token whoever has no form at all.
//!
//! ```text
//! cargo run --example coupons
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use idem::idempotent;
use idem::testing::replay;
use idem::token::{SignedTokens, SigningKeys, TokenError, TokenTable};
use idem_examples::{Findings, Scratch, records_expire};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqlitePool;

const SCHEMA: &str = "
CREATE TABLE coupon (code TEXT PRIMARY KEY, cents INTEGER NOT NULL, total INTEGER NOT NULL,
    used INTEGER NOT NULL DEFAULT 0 CHECK (used BETWEEN 0 AND total)) STRICT;
CREATE TABLE redemption (id INTEGER PRIMARY KEY, code TEXT NOT NULL REFERENCES coupon (code),
    owner TEXT NOT NULL, cents INTEGER NOT NULL, UNIQUE (code, owner)) STRICT;
INSERT INTO coupon (code, cents, total) VALUES ('SPRING', 500, 5), ('ONE', 900, 1);";

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Redeemed {
    id: i64,
    cents: i64,
}

#[derive(Debug, thiserror::Error)]
enum CouponError {
    #[error(transparent)]
    Idem(#[from] idem::Error),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("there is no such coupon, or you have redeemed it")]
    NotForYou,
    #[error("the coupon is used up")]
    UsedUp,
}

struct Coupons {
    pool: SqlitePool,
    tokens: SignedTokens,
}

impl Coupons {
    /// `GET`: the form. The token in it is all the identity that the form has.
    fn form(&self, user: &str, code: &str) -> Result<String, TokenError> {
        let operation = format!("redeem {code}");
        let token = self
            .tokens
            .issue(user, &operation, Duration::from_secs(900))?;
        Ok(token.into_string())
    }

    /// `POST`. A form that is sent again is answered before it comes to its token, which is used by
    /// then. What fails is rolled back, and the token is as good as before.
    #[idempotent(
        key = "redeem:{token}", key_text = "hidden", ttl = "1d", store = self.pool, tx = tx,
        token(self.tokens, token, subject = user, operation = format!("redeem {code}"))
    )]
    async fn redeem(&self, user: &str, code: &str, token: &str) -> Result<Redeemed, CouponError> {
        let insert = sqlx::query_as(
            "INSERT INTO redemption (code, owner, cents)
             SELECT code, $2, cents FROM coupon WHERE code = $1
             ON CONFLICT (code, owner) DO NOTHING RETURNING id, cents",
        );
        let redeemed = insert.bind(code).bind(user).fetch_optional(&mut **tx);
        let (id, cents) = redeemed.await?.ok_or(CouponError::NotForYou)?;
        // Last, because all users wait for this row until the commit of whoever has it.
        let count = "UPDATE coupon SET used = used + 1 WHERE code = $1 AND used < total";
        let counted = sqlx::query(count).bind(code).execute(&mut **tx).await?;
        if counted.rows_affected() != 1 {
            return Err(CouponError::UsedUp);
        }
        Ok(Redeemed { id, cents })
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let scratch = Scratch::new()?;
    let pool = scratch.open(SCHEMA, 8).await?;
    let table = TokenTable::default();
    table.migrate(&pool).await?;
    // A real secret comes from a random number generator and the configuration.
    let keys = SigningKeys::new(1, b"thirty-two bytes for the example")?;
    let tokens = SignedTokens::new(table, keys);
    let mut found = Findings::new(&pool);
    let desk = Arc::new(Coupons { pool, tokens });
    let send = |user: &str, code: &'static str, token: &str| {
        let (desk, user, token) = (Arc::clone(&desk), user.to_owned(), token.to_owned());
        async move { desk.redeem(&user, code, &token).await }
    };
    let spring = "SELECT used FROM coupon WHERE code = 'SPRING'";

    found.attack("one form, sent ten times at once");
    let form = desk.form("ada", "SPRING")?;
    let report = replay::run(10, || send("ada", "SPRING", &form)).await;
    let calls = "10 calls: 1 first runs, 9 replays, 0 refused";
    found.row("the key", report.to_string(), calls);
    found.number("redeemed", spring, 1).await?;

    found.attack("ten tabs, each with a form of its own, sent at once");
    let tabs: Result<Vec<_>, _> = (0..10).map(|_| desk.form("bob", "SPRING")).collect();
    let (tabs, mut next) = (tabs?, 0);
    let report = replay::run(10, || {
        next += 1;
        send("bob", "SPRING", &tabs[next - 1])
    });
    let report = report.await;
    found.row("redeemed", report.answers().flatten().count(), 1);
    let before = |it: &&_| matches!(it, Err(CouponError::NotForYou));
    let before = report.answers().filter(before).count();
    found.row("the unique index: refused", before, 9);
    found
        .number("the refused ones count back", spring, 2)
        .await?;

    found.attack("twenty users at once for the three that are left");
    let forms: Result<Vec<_>, _> = (0..20)
        .map(|no| desk.form(&format!("user{no}"), "SPRING"))
        .collect();
    let (forms, mut next) = (forms?, 0);
    let report = replay::run(20, || {
        next += 1;
        send(&format!("user{}", next - 1), "SPRING", &forms[next - 1])
    });
    let report = report.await;
    found.row("redeemed", report.answers().flatten().count(), 3);
    let used_up = |it: &&_| matches!(it, Err(CouponError::UsedUp));
    let used_up = report.answers().filter(used_up).count();
    found.row("the counter: refused", used_up, 17);
    found.number("redeemed in all", spring, 5).await?;

    found.attack("no form, and somebody else's");
    let made_up = send("eve", "ONE", "made-up").await;
    found.refused("the token", &made_up, "the token is not valid");
    let form = desk.form("cleo", "ONE")?;
    let stolen = send("eve", "ONE", &form).await;
    found.refused("the token", &stolen, "the token is not valid");
    let own = send("cleo", "ONE", &form).await;
    found.row("is still good for its owner", own.is_ok(), true);

    found.attack("the next day: the records have expired");
    records_expire(&desk.pool).await?;
    let late = send("cleo", "ONE", &form).await;
    found.refused("the token is used", &late, "the token is not valid");
    let left_over = send("bob", "SPRING", &desk.form("bob", "SPRING")?).await;
    found.refused("the index: a form of today", &left_over, "redeemed it");

    let rows = "SELECT COUNT(*) FROM redemption";
    found.number("redemptions", rows, 6).await?;
    let used = "SELECT SUM(used) FROM coupon";
    found.number("counted", used, 6).await?;
    Ok(found.verdict())
}
