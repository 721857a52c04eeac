//! The service: `pay` and `refund`, once each however often a provider calls.
//!
//! The functions are written once and compiled for each database, with `super::Db` naming it: the
//! statements are the same, and no type parameter stands between you and the code.

use idem::idempotent;
use serde::{Deserialize, Serialize};

use super::Db;
use crate::error::OrderError;
use crate::money::{Major, Money};
use crate::notice::{Refund, Trade};

type Tx<'c> = sqlx::Transaction<'c, Db>;

/// What a call answers: the ledger's entry, and how its order stood right after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) entry: i64,
    pub(crate) order_paid: i64,
    pub(crate) order_refunded: i64,
}

/// Books a payment. A trade is paid once, under whatever notices it is reported; one that comes
/// with another order or amount is refused.
#[idempotent(
    key = "pay:{trade.provider}:{trade.trade_no}",
    ttl = "400d",
    store = "tx",
    scope = "orders.pay",
    fingerprint(trade.merchant, trade.order_no, trade.amount)
)]
pub(crate) async fn pay(
    tx: &mut Tx<'_>,
    trade: &Trade,
    notice_id: &str,
) -> Result<Receipt, OrderError> {
    know_trade(tx, trade).await?;
    let amount = trade.amount.minor();
    let entry = write_entry(tx, trade, None, trade.amount, notice_id).await?;
    let (order_paid, order_refunded) = add_to_order(tx, trade, amount, 0).await?;
    add_to_balance(tx, trade, amount).await?;
    Ok(Receipt {
        entry,
        order_paid,
        order_refunded,
    })
}

/// Books a refund. It may come before its payment: providers promise no order.
#[idempotent(
    key = "refund:{trade.provider}:{trade.trade_no}:{refund.refund_no}",
    ttl = "400d",
    store = "tx",
    scope = "orders.refund",
    fingerprint(trade.merchant, trade.order_no, trade.amount, refund.amount)
)]
pub(crate) async fn refund(
    tx: &mut Tx<'_>,
    trade: &Trade,
    refund: &Refund,
    notice_id: &str,
) -> Result<Receipt, OrderError> {
    know_trade(tx, trade).await?;
    take_from_trade(tx, trade, refund).await?;
    let amount = refund.amount.minor();
    let number = Some(&*refund.refund_no);
    let entry = write_entry(tx, trade, number, refund.amount, notice_id).await?;
    let (order_paid, order_refunded) = add_to_order(tx, trade, 0, amount).await?;
    add_to_balance(tx, trade, -amount).await?;
    Ok(Receipt {
        entry,
        order_paid,
        order_refunded,
    })
}

/// The first notice that names a trade says what it is; every later one must say the same.
async fn know_trade(tx: &mut Tx<'_>, trade: &Trade) -> Result<(), OrderError> {
    sqlx::query(
        "INSERT INTO shop_trades (provider, trade_no, merchant, order_no, amount)
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT (provider, trade_no) DO NOTHING",
    )
    .bind(trade.provider.name())
    .bind(&trade.trade_no)
    .bind(&trade.merchant)
    .bind(&trade.order_no)
    .bind(trade.amount.minor())
    .execute(&mut **tx)
    .await?;
    let (merchant, order_no, amount): (String, String, i64) = sqlx::query_as(
        "SELECT merchant, order_no, amount FROM shop_trades WHERE provider = $1 AND trade_no = $2",
    )
    .bind(trade.provider.name())
    .bind(&trade.trade_no)
    .fetch_one(&mut **tx)
    .await?;
    if (&merchant, &order_no, amount) == (&trade.merchant, &trade.order_no, trade.amount.minor()) {
        return Ok(());
    }
    Err(OrderError::OtherTrade {
        trade_no: trade.trade_no.clone(),
        known: format!(
            "{} for order {order_no:?} of {merchant:?}",
            Major(amount.into())
        ),
    })
}

/// Refunds together never exceed what was paid.
async fn take_from_trade(
    tx: &mut Tx<'_>,
    trade: &Trade,
    refund: &Refund,
) -> Result<(), OrderError> {
    let taken = sqlx::query(
        "UPDATE shop_trades SET refunded = refunded + $3
         WHERE provider = $1 AND trade_no = $2 AND refunded <= amount - $3",
    )
    .bind(trade.provider.name())
    .bind(&trade.trade_no)
    .bind(refund.amount.minor())
    .execute(&mut **tx)
    .await?;
    if taken.rows_affected() == 1 {
        return Ok(());
    }
    Err(OrderError::AboveTrade {
        refund_no: refund.refund_no.clone(),
        amount: refund.amount,
    })
}

/// An entry without a refund's number is a payment.
async fn write_entry(
    tx: &mut Tx<'_>,
    trade: &Trade,
    refund_no: Option<&str>,
    amount: Money,
    notice_id: &str,
) -> Result<i64, OrderError> {
    let entry = sqlx::query_scalar(
        "INSERT INTO shop_ledger
             (merchant, order_no, provider, trade_no, refund_no, amount, notice_id)
         VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING entry",
    )
    .bind(&trade.merchant)
    .bind(&trade.order_no)
    .bind(trade.provider.name())
    .bind(&trade.trade_no)
    .bind(refund_no)
    .bind(amount.minor())
    .bind(notice_id)
    .fetch_one(&mut **tx)
    .await?;
    Ok(entry)
}

/// Answers how the order stands then.
async fn add_to_order(
    tx: &mut Tx<'_>,
    trade: &Trade,
    paid: i64,
    refunded: i64,
) -> Result<(i64, i64), OrderError> {
    let order = sqlx::query_as(
        "INSERT INTO shop_orders (merchant, order_no, paid, refunded) VALUES ($1, $2, $3, $4)
         ON CONFLICT (merchant, order_no) DO UPDATE
         SET paid = shop_orders.paid + excluded.paid,
             refunded = shop_orders.refunded + excluded.refunded
         RETURNING paid, refunded",
    )
    .bind(&trade.merchant)
    .bind(&trade.order_no)
    .bind(paid)
    .bind(refunded)
    .fetch_one(&mut **tx)
    .await?;
    Ok(order)
}

async fn add_to_balance(tx: &mut Tx<'_>, trade: &Trade, amount: i64) -> Result<(), OrderError> {
    sqlx::query(
        "INSERT INTO shop_balances (merchant, balance) VALUES ($1, $2)
         ON CONFLICT (merchant) DO UPDATE
         SET balance = shop_balances.balance + excluded.balance",
    )
    .bind(&trade.merchant)
    .bind(amount)
    .execute(&mut **tx)
    .await?;
    Ok(())
}
