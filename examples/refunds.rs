//! Refunds in parts: each once, together never more than was paid, and the provider, whom no
//! transaction reaches, asked under the refund's own number.
//!
//! ```text
//! cargo run --example refunds
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use idem::machine::{Progress, RequireError, Transition};
use idem::testing::replay;
use idem::{StateMachine, idempotent};
use idem_examples::{Findings, Scratch, records_expire};
use sqlx::sqlite::SqlitePool;

const SCHEMA: &str = "
CREATE TABLE payment (pay_no TEXT PRIMARY KEY, cents INTEGER NOT NULL,
    refunded INTEGER NOT NULL DEFAULT 0 CHECK (refunded BETWEEN 0 AND cents)) STRICT;
CREATE TABLE refund (id INTEGER PRIMARY KEY, refund_no TEXT NOT NULL UNIQUE,
    pay_no TEXT NOT NULL REFERENCES payment (pay_no), cents INTEGER NOT NULL CHECK (cents > 0),
    status TEXT NOT NULL DEFAULT 'requested') STRICT;
CREATE TABLE ledger (refund_id INTEGER PRIMARY KEY, cents INTEGER NOT NULL) STRICT;
INSERT INTO payment (pay_no, cents) VALUES ('p1', 10000), ('p2', 10000);";

#[derive(StateMachine, Clone, Copy, Debug, PartialEq, Eq)]
#[state_machine(column = text)]
enum Status {
    #[state(initial, to(Done, Declined))]
    Requested,
    #[state(terminal)]
    Done,
    #[state(terminal)]
    Declined,
}

#[derive(Debug, thiserror::Error)]
enum RefundError {
    #[error(transparent)]
    Idem(#[from] idem::Error),
    #[error(transparent)]
    Status(#[from] RequireError<Status>),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("the refunds together would be more than was paid")]
    AbovePaid,
    #[error("the provider did not answer: whether it paid is not known")]
    Unknown,
}

/// The provider: it keeps what it did under the number that it was asked with.
#[derive(Default)]
struct Provider(Mutex<BTreeMap<String, (i64, bool)>>);

impl Provider {
    /// Whether it pays out: nothing below a euro. `lost`: it does, and the answer never arrives.
    fn refund(&self, no: &str, cents: i64, lost: bool) -> Result<bool, RefundError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, pays) = *known.entry(no.to_owned()).or_insert((cents, cents >= 100));
        if lost {
            return Err(RefundError::Unknown);
        }
        Ok(pays)
    }

    fn paid_out(&self) -> i64 {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let done = known.values().filter(|(_, pays)| *pays);
        done.map(|(cents, _)| cents).sum()
    }
}

struct Refunds {
    pool: SqlitePool,
    status: Transition<Status>,
    provider: Provider,
}

impl Refunds {
    /// Sets the amount aside. The condition is part of the update: two different refunds that both
    /// fit alone do not both fit together.
    #[idempotent(
        key = "refund:{refund_no}", ttl = "30d", store = self.pool, tx = tx,
        backstop = sqlx::query_scalar(
            "SELECT id FROM refund WHERE refund_no = $1 AND pay_no = $2 AND cents = $3",
        )
        .bind(refund_no)
        .bind(pay_no)
        .bind(cents)
        .fetch_optional(&mut **tx)
    )]
    async fn request(&self, refund_no: &str, pay_no: &str, cents: i64) -> Result<i64, RefundError> {
        let fits = sqlx::query(
            "UPDATE payment SET refunded = refunded + $2
             WHERE pay_no = $1 AND refunded + $2 <= cents",
        );
        let fits = fits.bind(pay_no).bind(cents).execute(&mut **tx).await?;
        if fits.rows_affected() != 1 {
            return Err(RefundError::AbovePaid);
        }
        let id = sqlx::query_scalar(
            "INSERT INTO refund (refund_no, pay_no, cents) VALUES ($1, $2, $3) RETURNING id",
        );
        let id = id.bind(refund_no).bind(pay_no).bind(cents);
        Ok(id.fetch_one(&mut **tx).await?)
    }

    /// Asks the provider, outside any transaction, then books its answer. No answer is no decline:
    /// the refund stays requested, and whoever comes next asks again under the same number.
    async fn settle(&self, id: i64, lost: bool) -> Result<Status, RefundError> {
        let refund = sqlx::query_as("SELECT refund_no, cents FROM refund WHERE id = $1");
        let (no, cents): (String, i64) = refund.bind(id).fetch_one(&self.pool).await?;
        let pays = self.provider.refund(&no, cents, lost)?;
        let (status, follows) = if pays {
            let book = "INSERT INTO ledger SELECT id, cents FROM refund WHERE id = $1";
            (Status::Done, book)
        } else {
            let give_back = "UPDATE payment SET refunded = refunded - r.cents
                 FROM refund r WHERE r.id = $1 AND r.pay_no = payment.pay_no";
            (Status::Declined, give_back)
        };
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        if let Progress::Now = self.status.require(&mut tx, id, status).await? {
            sqlx::query(follows).bind(id).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(status)
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let scratch = Scratch::new()?;
    let pool = scratch.open(SCHEMA, 8).await?;
    let mut found = Findings::new(&pool);
    let status = Transition::in_table("refund").build()?;
    let provider = Provider::default();
    let desk = Arc::new(Refunds {
        pool,
        status,
        provider,
    });
    let request = |no: &str, pay_no: &'static str, cents| {
        let (desk, no) = (Arc::clone(&desk), no.to_owned());
        async move { desk.request(&no, pay_no, cents).await }
    };
    let refunded = "SELECT refunded FROM payment WHERE pay_no = 'p1'";

    found.attack("ten replays of one refund at once, and its number with another amount");
    let report = replay::run(10, || request("r1", "p1", 3000)).await;
    let calls = "10 calls: 1 first runs, 9 replays, 0 refused";
    found.row("the key", report.to_string(), calls);
    found.number("cents set aside", refunded, 3000).await?;
    let other = request("r1", "p1", 3500).await;
    found.refused("the key", &other, "another payload");

    found.attack("ten different refunds of 3000 at once, and 7000 left");
    let mut no = 0;
    let report = replay::run(10, || {
        no += 1;
        request(&format!("part{no}"), "p1", 3000)
    });
    let report = report.await;
    let granted = report.answers().flatten().count();
    found.row("the counter: granted", granted, 2);
    let above = |it: &&_| matches!(it, Err(RefundError::AbovePaid));
    let above = report.answers().filter(above).count();
    found.row("the counter: refused", above, 8);
    found.number("cents set aside", refunded, 9000).await?;

    found.attack("the provider pays and its answer is lost");
    let id = request("r1", "p1", 3000).await?;
    let lost = desk.settle(id, true).await;
    found.refused("unknown is not declined", &lost, "not known");
    let settle = |id| {
        let desk = Arc::clone(&desk);
        async move { desk.settle(id, false).await }
    };
    let report = replay::run(10, || settle(id)).await;
    let done = |it: &&_| matches!(it, Ok(Status::Done));
    let done = report.answers().filter(done).count();
    found.row("asked ten times more: done", done, 10);
    let out = desk.provider.paid_out();
    found.row("the handed-on number: cents paid out", out, 3000);
    let booked = "SELECT SUM(cents) FROM ledger";
    found
        .number("the state machine: booked", booked, 3000)
        .await?;

    found.attack("a refund that the provider declines, asked ten times");
    let id = request("odd", "p2", 50).await?;
    let report = replay::run(10, || settle(id)).await;
    found.row("answers", report.answers().flatten().count(), 10);
    let left = "SELECT refunded FROM payment WHERE pay_no = 'p2'";
    found.number("given back once, set aside", left, 0).await?;

    found.attack("a month later: the records have expired");
    records_expire(&desk.pool).await?;
    let late = request("odd", "p2", 50).await?;
    found.row("the backstop: the same refund", late, id);
    let other = request("r1", "p2", 50).await;
    found.refused("the index: another payment", &other, "UNIQUE");
    found.number("nothing of that stays", left, 0).await?;
    Ok(found.verdict())
}
