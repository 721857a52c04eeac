//! Reads the books back from the database, all as of one moment.

use sqlx::Pool;

use super::{Db, SNAPSHOT};
use crate::audit::{Booked, Books, Order, Twice};
use crate::error::OrderError;
use crate::patience::patiently;

pub(crate) async fn read(pool: &Pool<Db>) -> Result<Books, OrderError> {
    patiently(|| snapshot(pool)).await
}

async fn snapshot(pool: &Pool<Db>) -> Result<Books, OrderError> {
    let mut tx = pool.begin_with(SNAPSHOT).await?;
    let mut books = Books::default();
    let ledger: Vec<(String, String, i64, i64, i64, i64)> = sqlx::query_as(
        "SELECT merchant, order_no,
             CAST(COALESCE(SUM(CASE WHEN refund_no IS NULL THEN amount END), 0) AS BIGINT),
             CAST(COALESCE(SUM(CASE WHEN refund_no IS NOT NULL THEN amount END), 0) AS BIGINT),
             COUNT(*) - COUNT(refund_no), COUNT(refund_no)
         FROM shop_ledger GROUP BY merchant, order_no",
    )
    .fetch_all(&mut *tx)
    .await?;
    for (merchant, order_no, paid, refunded, payments, refunds) in ledger {
        let sums = Order { paid, refunded };
        let booked = Booked {
            sums,
            payments,
            refunds,
        };
        books.ledger.insert((merchant, order_no), booked);
    }
    let orders: Vec<(String, String, i64, i64)> =
        sqlx::query_as("SELECT merchant, order_no, paid, refunded FROM shop_orders")
            .fetch_all(&mut *tx)
            .await?;
    for (merchant, order_no, paid, refunded) in orders {
        let order = Order { paid, refunded };
        books.orders.insert((merchant, order_no), order);
    }
    let balances: Vec<(String, i64)> =
        sqlx::query_as("SELECT merchant, balance FROM shop_balances")
            .fetch_all(&mut *tx)
            .await?;
    books.balances.extend(balances);
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
