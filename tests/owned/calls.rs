//! The functions under test. Compiled once for each database.

use idem::idempotent;
use idem_test_support::Body;

use super::db::{Db, Pool};
use crate::support::{Failure, Order, Receipt};

/// A business write in the framework's transaction.
pub(crate) async fn write(
    tx: &mut sqlx::Transaction<'_, Db>,
    order: &Order,
) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO effect (no, cents) VALUES ($1, $2)")
        .bind(order.no as i64)
        .bind(order.cents)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// How often the effect of this order is there, seen from `pool`.
pub(crate) async fn effects(pool: &Pool, no: u64) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM effect WHERE no = $1")
        .bind(no as i64)
        .fetch_one(pool)
        .await
        .unwrap()
}

pub(crate) async fn records(pool: &Pool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM idem_record")
        .fetch_one(pool)
        .await
        .unwrap()
}

#[idempotent(key = "{order.no}", ttl = "1h", store = pool, tx = tx)]
pub(crate) async fn pay(pool: &Pool, order: Order, body: &Body) -> Result<Receipt, Failure> {
    write(tx, &order).await?;
    let run = body.run().await;
    Ok(Receipt { no: order.no, run })
}

#[idempotent(key = "{order.no}", ttl = "1h", store = pool, tx = tx, wait = "400ms")]
pub(crate) async fn pay_soon(pool: &Pool, order: Order, body: &Body) -> Result<Receipt, Failure> {
    write(tx, &order).await?;
    let run = body.run().await;
    Ok(Receipt { no: order.no, run })
}

#[idempotent(key = "{order.no}", ttl = "1h", store = pool, tx = tx, reject)]
pub(crate) async fn pay_now(pool: &Pool, order: Order, body: &Body) -> Result<Receipt, Failure> {
    write(tx, &order).await?;
    let run = body.run().await;
    Ok(Receipt { no: order.no, run })
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Well,
    Busy,
    Declined,
    Panic,
    /// With a failed statement that it does not report, which in Postgres aborts the transaction.
    Poisoned,
}

async fn end(tx: &mut sqlx::Transaction<'_, Db>, end: End) -> Result<(), Failure> {
    match end {
        End::Well => Ok(()),
        End::Busy => Err(Failure::Busy),
        End::Declined => Err(Failure::Declined("no money".to_owned())),
        End::Panic => panic!("on purpose"),
        End::Poisoned => {
            sqlx::query("SELECT no_such_column FROM effect")
                .execute(&mut **tx)
                .await
                .unwrap_err();
            Ok(())
        }
    }
}

/// Releases every error.
#[idempotent(key = "{order.no}", ttl = "1h", store = pool, tx = tx, reject)]
pub(crate) async fn released(
    pool: &Pool,
    order: Order,
    body: &Body,
    how: End,
) -> Result<Receipt, Failure> {
    write(tx, &order).await?;
    let run = body.run().await;
    end(tx, how).await?;
    Ok(Receipt { no: order.no, run })
}

/// Records final errors.
#[idempotent(
    key = "{order.no}", ttl = "1h", store = pool, tx = tx, record_err = Failure::is_final
)]
pub(crate) async fn recorded(
    pool: &Pool,
    order: Order,
    body: &Body,
    how: End,
) -> Result<Receipt, Failure> {
    write(tx, &order).await?;
    let run = body.run().await;
    end(tx, how).await?;
    Ok(Receipt { no: order.no, run })
}
