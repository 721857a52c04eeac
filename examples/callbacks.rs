//! What to answer to a payment provider, who repeats a notice until he reads "success".
//!
//! A replay is a success; so is a notice that is too old to change anything. A notice that comes
//! too early, or while its first copy is being worked on, is to come again. The signature is checked
//! before any of this; booking many notices of three providers is the example `orders`.
//!
//! ```text
//! cargo run --example callbacks
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use idem::machine::{Transition, Transitioned};
use idem::{KeyPart, Retry, StateMachine, idempotent};
use idem_examples::{Findings, Scratch, records_expire};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqlitePool;
use tokio::sync::RwLock;
use tokio::task::JoinSet;

const SCHEMA: &str = "
CREATE TABLE shop_order (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending') STRICT;
CREATE TABLE ledger (trade_no TEXT NOT NULL, event TEXT NOT NULL, cents INTEGER NOT NULL,
    UNIQUE (trade_no, event)) STRICT;
CREATE TABLE stray (trade_no TEXT PRIMARY KEY, cents INTEGER NOT NULL,
    sent_back INTEGER NOT NULL DEFAULT FALSE) STRICT;
INSERT INTO shop_order VALUES (1, 700, 'pending'), (2, 900, 'pending'), (3, 400, 'cancelled'),
    (4, 500, 'pending');";

#[derive(StateMachine, KeyPart, Clone, Copy, Debug, PartialEq, Eq)]
#[state_machine(column = text)]
enum Status {
    #[state(initial, to(Paid, Cancelled))]
    Pending,
    #[state(to(Refunded))]
    Paid,
    #[state(terminal)]
    Refunded,
    #[state(terminal)]
    Cancelled,
}

/// `event` is what it means for the order: two notices with ids of their own, "success" and
/// "finished", both mean that the trade is paid.
struct Notice {
    notice_id: &'static str,
    trade_no: &'static str,
    event: Status,
    order: i64,
    cents: i64,
}

#[derive(Debug, Serialize, Deserialize, PartialEq)]
enum Taken {
    Booked,
    TooOld,
    /// Money for an order that is not to be paid: somebody has to send it back.
    Stray,
    SentBack,
}

#[derive(Debug, thiserror::Error)]
enum NoticeError {
    #[error(transparent)]
    Idem(#[from] idem::Error),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("what comes before it has not come")]
    TooEarly,
    #[error("the order has another price")]
    WrongAmount,
}

struct Desk {
    pool: SqlitePool,
    orders: Transition<Status>,
    /// Whatever makes a notice slow; the attack holds it.
    slow: RwLock<()>,
}

impl Desk {
    /// The key is the effect's and not the notice's. A provider who waits five seconds for his
    /// answer is better told to come again than kept waiting: `reject`.
    #[idempotent(
        key = "{notice.trade_no}:{notice.event}", fingerprint(notice.order, notice.cents),
        ttl = "7d", store = self.pool, tx = tx, reject
    )]
    async fn take(&self, notice: &Notice) -> Result<Taken, NoticeError> {
        drop(self.slow.read().await);
        let (trade_no, event) = (notice.trade_no, notice.event);
        let (order, cents) = (notice.order, notice.cents);
        if event == Status::Refunded {
            // A refund follows its own payment, which may have gone astray, or not have come yet.
            let sent_back = "UPDATE stray SET sent_back = TRUE WHERE trade_no = $1";
            let sent_back = sqlx::query(sent_back).bind(trade_no);
            if sent_back.execute(&mut **tx).await?.rows_affected() == 1 {
                return Ok(Taken::SentBack);
            }
            let paid = "SELECT 1 FROM ledger WHERE trade_no = $1 AND event = 'paid'";
            let paid = sqlx::query(paid).bind(trade_no);
            if paid.fetch_optional(&mut **tx).await?.is_none() {
                return Err(NoticeError::TooEarly);
            }
        }
        match self.orders.apply(tx, order, event).await? {
            Transitioned::Applied { .. } => {
                let book = sqlx::query(
                    "INSERT INTO ledger (trade_no, event, cents)
                     SELECT $1, $2, cents FROM shop_order WHERE id = $3 AND cents = $4",
                );
                let book = book.bind(trade_no).bind(event).bind(order).bind(cents);
                match book.execute(&mut **tx).await?.rows_affected() {
                    1 => Ok(Taken::Booked),
                    _ => Err(NoticeError::WrongAmount),
                }
            }
            Transitioned::NotFound => Err(NoticeError::TooEarly),
            // The order has gone on. Where it knows this trade, that is why; else the money is new.
            _ => {
                let stray = sqlx::query(
                    "INSERT INTO stray (trade_no, cents) SELECT $1, $3 WHERE NOT EXISTS
                     (SELECT 1 FROM ledger WHERE trade_no = $1 AND event = $2)
                     ON CONFLICT DO NOTHING",
                );
                let stray = stray.bind(trade_no).bind(event).bind(cents);
                match stray.execute(&mut **tx).await?.rows_affected() {
                    1 => Ok(Taken::Stray),
                    _ => Ok(Taken::TooOld),
                }
            }
        }
    }

    /// The reply, the same to the byte whenever it is the same answer.
    async fn reply(&self, notice: &Notice) -> &'static str {
        match self.take(notice).await {
            Ok(_) => "200 success",
            Err(NoticeError::TooEarly | NoticeError::Database(_)) => "503 fail",
            // In progress, no database, run the transaction again.
            Err(NoticeError::Idem(error)) if error.retry() != Retry::Never => "503 fail",
            // A repeat cannot help: tell a person. A provider repeats it all the same.
            Err(error) => {
                eprintln!("notice {}: {error}", notice.notice_id);
                "400 fail"
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let scratch = Scratch::new()?;
    let pool = scratch.open(SCHEMA, 8).await?;
    let mut found = Findings::new(&pool);
    let orders = Transition::in_table("shop_order").build()?;
    let slow = RwLock::new(());
    let desk = Arc::new(Desk { pool, orders, slow });
    let notice = |notice_id, trade_no, event, order, cents| Notice {
        notice_id,
        trade_no,
        event,
        order,
        cents,
    };
    let (paid, refunded) = (Status::Paid, Status::Refunded);
    let booked = "SELECT COUNT(*) FROM ledger";

    found.attack("ten copies at once, and the first of them takes its time");
    let held = desk.slow.write().await;
    let mut copies = JoinSet::new();
    for _ in 0..10 {
        let desk = Arc::clone(&desk);
        copies.spawn(async move { desk.reply(&notice("n1", "t1", paid, 1, 700)).await });
    }
    let mut replies = Vec::new();
    while replies.len() < 9 {
        replies.extend(copies.join_next().await.transpose()?);
    }
    let later = replies.iter().filter(|it| **it == "503 fail").count();
    found.row("in progress: told to come again", later, 9);
    drop(held);
    let first = copies.join_next().await.transpose()?;
    found.row("the first", first.unwrap_or_default(), "200 success");
    for _ in 0..9 {
        replies.push(desk.reply(&notice("n1", "t1", paid, 1, 700)).await);
    }
    let success = replies.iter().filter(|it| **it == "200 success").count();
    found.row("come again: success", success, 9);
    found.number("entries", booked, 1).await?;

    found.attack("one trade under two notices, success and finished");
    let reply = desk.reply(&notice("n2", "t1", paid, 1, 700)).await;
    found.row("the effect's key", reply, "200 success");
    found.number("entries", booked, 1).await?;

    found.attack("the refund comes before its payment");
    let refund = notice("n3", "t2", refunded, 2, 900);
    found.row("too early", desk.reply(&refund).await, "503 fail");
    let reply = desk.reply(&notice("n4", "t2", paid, 2, 900)).await;
    found.row("its payment", reply, "200 success");
    found.row("come again", desk.reply(&refund).await, "200 success");
    found.number("entries", booked, 3).await?;

    found.attack("the eighth day: the payment of what is refunded");
    records_expire(&desk.pool).await?;
    let old = notice("n4", "t2", paid, 2, 900);
    let taken = desk.take(&old).await?;
    found.row("the state machine: too old", taken == Taken::TooOld, true);
    found.row("the reply", desk.reply(&old).await, "200 success");
    found.number("entries", booked, 3).await?;

    found.attack("money for a cancelled order, and a second payment of a paid one");
    for notice in [
        notice("n5", "t3", paid, 3, 400),
        notice("n6", "t4", paid, 1, 700),
    ] {
        found.row("the reply", desk.reply(&notice).await, "200 success");
    }
    let stray = "SELECT COUNT(*) FROM stray WHERE NOT sent_back";
    found.number("to be sent back", stray, 2).await?;
    let reply = desk.reply(&notice("n7", "t4", refunded, 1, 700)).await;
    found.row("one of them is", reply, "200 success");
    found.number("to be sent back", stray, 1).await?;
    let paid_still = "SELECT COUNT(*) FROM shop_order WHERE id = 1 AND status = 'paid'";
    found.number("the order stays paid", paid_still, 1).await?;

    found.attack("amounts that are not right");
    let wrong = desk.reply(&notice("n8", "t5", paid, 4, 1)).await;
    found.row("the price", wrong, "400 fail");
    let wrong = desk.reply(&notice("n9", "t3", paid, 3, 1)).await;
    found.row("a trade that is known", wrong, "400 fail");
    found.number("entries", booked, 3).await?;
    let open = "SELECT COUNT(*) FROM shop_order WHERE status = 'pending'";
    found.number("orders that wait", open, 1).await?;
    Ok(found.verdict())
}
