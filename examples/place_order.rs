//! An order is placed once, changed by nobody who has not seen it, and paid or cancelled, not both.
//!
//! The key replays the request; the unique index knows the cart, under whatever request it comes;
//! the version stops a form that was opened before somebody else saved; the state machine stops the
//! other operation.
//!
//! ```text
//! cargo run --example place_order
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use idem::machine::{Progress, RequireError, Transition};
use idem::testing::replay;
use idem::version::{VersionError, VersionedUpdate};
use idem::{StateMachine, idempotent};
use idem_examples::{Findings, Scratch, records_expire};
use serde::Serialize;
use sqlx::Sqlite;
use sqlx::sqlite::SqlitePool;

const SCHEMA: &str = "
CREATE TABLE shop_order (id INTEGER PRIMARY KEY, customer TEXT NOT NULL, cart TEXT NOT NULL,
    cents INTEGER NOT NULL CHECK (cents > 0), address TEXT NOT NULL DEFAULT 'Rome',
    status TEXT NOT NULL DEFAULT 'pending', version INTEGER NOT NULL DEFAULT 1,
    UNIQUE (customer, cart)) STRICT;
CREATE TABLE event (order_id INTEGER NOT NULL, what TEXT NOT NULL) STRICT;";

#[derive(StateMachine, Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[state_machine(column = text)]
enum Status {
    #[state(initial, to(Paid, Cancelled))]
    Pending,
    #[state(terminal)]
    Paid,
    #[state(terminal)]
    Cancelled,
}

#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error(transparent)]
    Idem(#[from] idem::Error),
    #[error(transparent)]
    Status(#[from] RequireError<Status>),
    #[error(transparent)]
    Version(#[from] VersionError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("the cart is ordered already, at another price")]
    OtherOrder,
}

struct Shop {
    pool: SqlitePool,
    status: Transition<Status>,
    address: VersionedUpdate<Sqlite, 1>,
}

impl Shop {
    /// `request` is what the client sends with every retry. The insert is its own backstop: a cart
    /// that is ordered already is answered with its order.
    #[idempotent(key = "place:{customer}:{request}", ttl = "7d", store = self.pool, tx = tx)]
    async fn place(
        &self,
        request: &str,
        customer: &str,
        cart: &str,
        cents: i64,
    ) -> Result<i64, OrderError> {
        let placed: Option<i64> = sqlx::query_scalar(
            "INSERT INTO shop_order (customer, cart, cents) VALUES ($1, $2, $3)
             ON CONFLICT (customer, cart) DO NOTHING RETURNING id",
        )
        .bind(customer)
        .bind(cart)
        .bind(cents)
        .fetch_optional(&mut **tx)
        .await?;
        if let Some(id) = placed {
            return Ok(id);
        }
        let known = "SELECT id FROM shop_order WHERE customer = $1 AND cart = $2 AND cents = $3";
        let known = sqlx::query_scalar(known)
            .bind(customer)
            .bind(cart)
            .bind(cents);
        let known = known.fetch_optional(&mut **tx).await?;
        known.ok_or(OrderError::OtherOrder)
    }

    /// `form` is given out with the version that it shows. Without the key a double click on "save"
    /// would be told of a conflict, with itself.
    #[idempotent(key = "move:{form}", ttl = "1d", store = self.pool, tx = tx)]
    async fn move_to(
        &self,
        form: &str,
        order: i64,
        version: i64,
        to: &str,
    ) -> Result<i64, OrderError> {
        let to = (to.to_owned(),);
        let updated = self.address.apply(tx, order, version, to).await?;
        Ok(updated.version)
    }

    /// Pays or cancels. Who comes second for the same is told "done", for the other "refused".
    /// `Status` serialises, and so is part of the payload that may not change.
    #[idempotent(key = "close:{request}", ttl = "7d", store = self.pool, tx = tx)]
    async fn close(&self, request: &str, order: i64, to: Status) -> Result<(), OrderError> {
        if let Progress::Now = self.status.require(tx, order, to).await? {
            let event = sqlx::query("INSERT INTO event (order_id, what) VALUES ($1, $2)");
            event.bind(order).bind(to).execute(&mut **tx).await?;
        }
        Ok(())
    }
}

const ORDERS: &str = "SELECT COUNT(*) FROM shop_order";

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let scratch = Scratch::new()?;
    let pool = scratch.open(SCHEMA, 8).await?;
    let mut found = Findings::new(&pool);
    let status = Transition::in_table("shop_order").bump_version("version");
    let shop = Arc::new(Shop {
        pool,
        status: status.build()?,
        address: VersionedUpdate::new("shop_order", ["address"])?,
    });
    let place = |request: &str, cart: &str, cents| {
        let (shop, request, cart) = (Arc::clone(&shop), request.to_owned(), cart.to_owned());
        async move { shop.place(&request, "ada", &cart, cents).await }
    };

    found.attack("a double click, ten times");
    let report = replay::run(10, || place("r1", "cart1", 4200)).await;
    let calls = "10 calls: 1 first runs, 9 replays, 0 refused";
    found.row("the key", report.to_string(), calls);
    let first = place("r1", "cart1", 4200).await?;
    found.number("orders", ORDERS, 1).await?;

    found.attack("a client that makes a new number for every retry");
    let mut no = 1;
    let report = replay::run(10, || {
        no += 1;
        place(&format!("r{no}"), "cart1", 4200)
    });
    let report = report.await;
    let same = report.answers().flatten().filter(|id| **id == first);
    found.row("the index: told of the one order", same.count(), 10);
    found.number("orders", ORDERS, 1).await?;
    let other = place("r12", "cart1", 9900).await;
    found.refused("at another price", &other, "at another price");

    found.attack("the eighth day: the records have expired");
    records_expire(&shop.pool).await?;
    let late = place("r1", "cart1", 4200).await?;
    found.row("the index: the first order", late, first);

    found.attack("two forms, opened at the same version");
    let save = |form: &'static str, to: &'static str| {
        let shop = Arc::clone(&shop);
        async move { shop.move_to(form, first, 1, to).await }
    };
    let report = replay::run(10, || save("f1", "Paris")).await;
    found.row("saved by a double click", report.to_string(), calls);
    let stale = save("f2", "Oslo").await;
    found.refused("the version", &stale, "version");
    let version = "SELECT version FROM shop_order";
    found.number("raised once, to", version, 2).await?;

    found.attack("twenty orders, each paid and cancelled at once");
    let mut orders = Vec::new();
    for no in 0..20 {
        orders.push(place(&format!("x{no}"), &format!("c{no}"), 100).await?);
    }
    let mut next = 0;
    let report = replay::run(40, || {
        let to = [Status::Paid, Status::Cancelled][next % 2];
        let (shop, request, order) = (Arc::clone(&shop), format!("z{next}"), orders[next / 2]);
        next += 1;
        async move { shop.close(&request, order, to).await }
    });
    let report = report.await;
    found.row("made", report.answers().flatten().count(), 20);
    let refused = |it: &&_| matches!(it, Err(OrderError::Status(_)));
    let refused = report.answers().filter(refused).count();
    found.row("the state machine: refused", refused, 20);
    let events = "SELECT COUNT(*) FROM event JOIN shop_order ON id = order_id AND what = status";
    found
        .number("events that say what is so", events, 20)
        .await?;
    found
        .number("events", "SELECT COUNT(*) FROM event", 20)
        .await?;

    found.attack("cancelled by the customer and by the shop");
    let order = place("y", "cart2", 500).await?;
    for request in ["customer", "shop"] {
        shop.close(request, order, Status::Cancelled).await?;
    }
    let turned = shop.close("shop", order, Status::Paid).await;
    found.refused("a request, turned round", &turned, "another payload");
    let events = "SELECT COUNT(*) FROM event";
    found.number("events", events, 21).await?;
    Ok(found.verdict())
}
