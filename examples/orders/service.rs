//! The service: `pay` and `refund`, once each however often a provider calls.
//!
//! The functions are written once and compiled for each database, with `super::Db` naming it: the
//! statements are the same, and no type parameter stands between you and the code.

use idem::idempotent;
use serde::{Deserialize, Serialize};

use super::Db;
use crate::error::OrderError;
use crate::money::{Currency, Money, Sum};
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
/// with another order, amount or currency is refused.
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
    let amount = trade.amount;
    let entry = write_entry(tx, trade, None, amount, notice_id).await?;
    let (order_paid, order_refunded) = add_to_order(tx, trade, amount, Side::Paid).await?;
    add_to_balance(tx, trade, amount, Side::Paid).await?;
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
    let amount = refund.amount;
    let number = Some(&*refund.refund_no);
    let entry = write_entry(tx, trade, number, amount, notice_id).await?;
    let (order_paid, order_refunded) = add_to_order(tx, trade, amount, Side::Refunded).await?;
    add_to_balance(tx, trade, amount, Side::Refunded).await?;
    Ok(Receipt {
        entry,
        order_paid,
        order_refunded,
    })
}

/// The first notice that names a trade says what it is; every later one must say the same.
async fn know_trade(tx: &mut Tx<'_>, trade: &Trade) -> Result<(), OrderError> {
    sqlx::query(
        "INSERT INTO shop_trades (provider, trade_no, merchant, order_no, amount, currency)
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (provider, trade_no) DO NOTHING",
    )
    .bind(trade.provider.name())
    .bind(&trade.trade_no)
    .bind(&trade.merchant)
    .bind(&trade.order_no)
    .bind(trade.amount.minor())
    .bind(trade.amount.currency().code())
    .execute(&mut **tx)
    .await?;
    let (merchant, order_no, amount, currency): (String, String, i64, String) = sqlx::query_as(
        "SELECT merchant, order_no, amount, currency FROM shop_trades
         WHERE provider = $1 AND trade_no = $2",
    )
    .bind(trade.provider.name())
    .bind(&trade.trade_no)
    .fetch_one(&mut **tx)
    .await?;
    let money = trade.amount;
    if (&*merchant, &*order_no) == (&*trade.merchant, &*trade.order_no)
        && (amount, &*currency) == (money.minor(), money.currency().code())
    {
        return Ok(());
    }
    let known = match Currency::parse(&currency) {
        Ok(currency) => Sum(amount.into(), currency).to_string(),
        Err(_) => format!("{amount} of {currency:?}"),
    };
    Err(OrderError::OtherTrade {
        known: format!("{known} for order {order_no:?} of {merchant:?}"),
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
             (merchant, order_no, provider, trade_no, refund_no, amount, notice_id, currency)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING entry",
    )
    .bind(&trade.merchant)
    .bind(&trade.order_no)
    .bind(trade.provider.name())
    .bind(&trade.trade_no)
    .bind(refund_no)
    .bind(amount.minor())
    .bind(notice_id)
    .bind(amount.currency().code())
    .fetch_one(&mut **tx)
    .await?;
    Ok(entry)
}

#[derive(Clone, Copy)]
enum Side {
    Paid,
    Refunded,
}

/// Answers how the order stands then, in the currency of `amount`.
async fn add_to_order(
    tx: &mut Tx<'_>,
    trade: &Trade,
    amount: Money,
    side: Side,
) -> Result<(i64, i64), OrderError> {
    let (paid, refunded) = match side {
        Side::Paid => (amount.minor(), 0),
        Side::Refunded => (0, amount.minor()),
    };
    let order = sqlx::query_as(
        "INSERT INTO shop_orders (merchant, order_no, paid, refunded, currency)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (merchant, order_no, currency) DO UPDATE
         SET paid = shop_orders.paid + excluded.paid,
             refunded = shop_orders.refunded + excluded.refunded
         RETURNING paid, refunded",
    )
    .bind(&trade.merchant)
    .bind(&trade.order_no)
    .bind(paid)
    .bind(refunded)
    .bind(amount.currency().code())
    .fetch_one(&mut **tx)
    .await;
    order.map_err(|error| OrderError::of_sum(error, "the order", amount))
}

async fn add_to_balance(
    tx: &mut Tx<'_>,
    trade: &Trade,
    amount: Money,
    side: Side,
) -> Result<(), OrderError> {
    let minor = match side {
        Side::Paid => amount.minor(),
        Side::Refunded => -amount.minor(),
    };
    let added = sqlx::query(
        "INSERT INTO shop_balances (merchant, balance, currency) VALUES ($1, $2, $3)
         ON CONFLICT (merchant, currency) DO UPDATE
         SET balance = shop_balances.balance + excluded.balance",
    )
    .bind(&trade.merchant)
    .bind(minor)
    .bind(amount.currency().code())
    .execute(&mut **tx)
    .await;
    match added {
        Ok(_) => Ok(()),
        Err(error) => Err(OrderError::of_sum(error, "the merchant", amount)),
    }
}
