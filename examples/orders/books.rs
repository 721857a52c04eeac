//! Reads the books back from the database, all as of one moment.

use sqlx::Pool;

use super::{Db, SNAPSHOT};
use crate::audit::{Booked, Books, Order, Twice};
use crate::error::OrderError;
use crate::money::Currency;
use crate::patience::patiently;

pub(crate) async fn read(pool: &Pool<Db>) -> Result<Books, OrderError> {
    patiently(|| snapshot(pool)).await
}

async fn snapshot(pool: &Pool<Db>) -> Result<Books, OrderError> {
    let mut tx = pool.begin_with(SNAPSHOT).await?;
    let mut books = Books::default();
    let ledger: Vec<(String, String, String, i64, i64, i64, i64)> = sqlx::query_as(
        "SELECT merchant, order_no, currency,
             CAST(COALESCE(SUM(CASE WHEN refund_no IS NULL THEN amount END), 0) AS BIGINT),
             CAST(COALESCE(SUM(CASE WHEN refund_no IS NOT NULL THEN amount END), 0) AS BIGINT),
             COUNT(*) - COUNT(refund_no), COUNT(refund_no)
         FROM shop_ledger GROUP BY merchant, order_no, currency",
    )
    .fetch_all(&mut *tx)
    .await?;
    for (merchant, order_no, currency, paid, refunded, payments, refunds) in ledger {
        let sums = Order { paid, refunded };
        let booked = Booked {
            sums,
            payments,
            refunds,
        };
        let key = (merchant, order_no, known(&currency)?);
        books.ledger.insert(key, booked);
    }
    let orders: Vec<(String, String, String, i64, i64)> =
        sqlx::query_as("SELECT merchant, order_no, currency, paid, refunded FROM shop_orders")
            .fetch_all(&mut *tx)
            .await?;
    for (merchant, order_no, currency, paid, refunded) in orders {
        let order = Order { paid, refunded };
        let key = (merchant, order_no, known(&currency)?);
        books.orders.insert(key, order);
    }
    let balances: Vec<(String, String, i64)> =
        sqlx::query_as("SELECT merchant, currency, balance FROM shop_balances")
            .fetch_all(&mut *tx)
            .await?;
    for (merchant, currency, balance) in balances {
        let account = (merchant, known(&currency)?);
        books.balances.insert(account, balance);
    }
    let twice: Vec<(String, String, Option<String>, i64)> = sqlx::query_as(
        "SELECT provider, trade_no, refund_no, COUNT(*) FROM shop_ledger
         GROUP BY provider, trade_no, refund_no HAVING COUNT(*) > 1",
    )
    .fetch_all(&mut *tx)
    .await?;
    for (provider, trade_no, refund_no, times) in twice {
        books.twice.push(Twice {
            provider,
            trade_no,
            refund_no,
            times,
        });
    }
    tx.rollback().await?;
    Ok(books)
}

/// A currency as the service wrote it.
fn known(code: &str) -> Result<Currency, OrderError> {
    Currency::parse(code).map_err(|error| sqlx::Error::Decode(error.into()).into())
}
