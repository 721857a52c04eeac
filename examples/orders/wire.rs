//! The three providers' own formats, and how each is read as a [`Notice`].
//!
//! Fields that are not named here are ignored: providers add fields without telling.

use serde::Deserialize;

use crate::money::{Currency, Money};
use crate::notice::{BadLine, Event, Notice, Provider, Refund, Trade};
use crate::object::Object;

/// The longest id that is taken; providers promise at most 64 characters.
const MAX_ID_BYTES: usize = 256;

/// One line of the file.
#[derive(Deserialize)]
#[serde(tag = "provider", content = "payload", rename_all = "lowercase")]
pub(crate) enum Callback {
    Alipay(Object<Alipay>),
    Wechat(Object<Wechat>),
    Stripe(Object<Stripe>),
}

/// Amounts are yuan as text. A refund is a notice of its trade with two fields more.
#[derive(Deserialize)]
pub(crate) struct Alipay {
    notify_id: String,
    seller_id: String,
    out_trade_no: String,
    trade_no: String,
    trade_status: String,
    total_amount: String,
    refund_fee: Option<String>,
    out_request_no: Option<String>,
}

/// Amounts are fen, unless another currency is named.
#[derive(Deserialize)]
pub(crate) struct Wechat {
    id: String,
    event_type: String,
    mchid: String,
    out_trade_no: String,
    transaction_id: String,
    refund_id: Option<String>,
    amount: Object<WechatAmount>,
    trade_state: Option<String>,
}

#[derive(Deserialize)]
struct WechatAmount {
    total: u64,
    refund: Option<u64>,
    currency: Option<String>,
}

/// Amounts are the least units of the currency: cents, yen. The order's number is in the metadata the merchant sent along.
#[derive(Deserialize)]
pub(crate) struct Stripe {
    id: String,
    account: String,
    r#type: String,
    data: Object<StripeData>,
}

#[derive(Deserialize)]
struct StripeData {
    object: Object<StripeCharge>,
}

#[derive(Deserialize)]
struct StripeCharge {
    id: String,
    amount: u64,
    amount_captured: Option<u64>,
    currency: Option<String>,
    paid: Option<bool>,
    captured: Option<bool>,
    metadata: Object<StripeMetadata>,
    refunds: Option<Object<StripeRefunds>>,
}

#[derive(Deserialize)]
struct StripeMetadata {
    order_id: String,
}

#[derive(Deserialize)]
struct StripeRefunds {
    data: Vec<Object<StripeRefund>>,
}

#[derive(Deserialize)]
struct StripeRefund {
    id: String,
    amount: u64,
    currency: Option<String>,
}

impl Callback {
    pub(crate) fn read(self) -> Result<Notice, BadLine> {
        match self {
            Self::Alipay(notice) => notice.0.read(),
            Self::Wechat(notice) => notice.0.read(),
            Self::Stripe(notice) => notice.0.read(),
        }
    }
}

impl Alipay {
    fn read(self) -> Result<Notice, BadLine> {
        let trade = Trade {
            provider: Provider::Alipay,
            trade_no: id("trade_no", self.trade_no)?,
            merchant: id("seller_id", self.seller_id)?,
            order_no: id("out_trade_no", self.out_trade_no)?,
            amount: yuan("total_amount", &self.total_amount)?,
        };
        if !matches!(&*self.trade_status, "TRADE_SUCCESS" | "TRADE_FINISHED") {
            return Err(BadLine::OtherEvent(format!(
                "trade_status {:?}",
                self.trade_status
            )));
        }
        let event = match (self.refund_fee, self.out_request_no) {
            (None, None) => Event::Paid,
            (fee, number) => refunded(
                &trade,
                vec![Refund {
                    refund_no: id("out_request_no", required("out_request_no", number)?)?,
                    amount: yuan("refund_fee", &required("refund_fee", fee)?)?,
                }],
            )?,
        };
        notice("notify_id", self.notify_id, trade, event)
    }
}

impl Wechat {
    fn read(self) -> Result<Notice, BadLine> {
        let Object(amount) = self.amount;
        let currency = match &amount.currency {
            Some(code) => currency("amount.currency", code)?,
            None => Currency::CNY,
        };
        let trade = Trade {
            provider: Provider::Wechat,
            trade_no: id("transaction_id", self.transaction_id)?,
            merchant: id("mchid", self.mchid)?,
            order_no: id("out_trade_no", self.out_trade_no)?,
            amount: minor("amount.total", amount.total, currency)?,
        };
        let event = match &*self.event_type {
            "TRANSACTION.SUCCESS" => match self.trade_state.as_deref() {
                None | Some("SUCCESS") => Event::Paid,
                Some(other) => {
                    return Err(BadLine::OtherEvent(format!("trade_state {other:?}")));
                }
            },
            "REFUND.SUCCESS" => refunded(
                &trade,
                vec![Refund {
                    refund_no: id("refund_id", required("refund_id", self.refund_id)?)?,
                    amount: minor(
                        "amount.refund",
                        required("amount.refund", amount.refund)?,
                        currency,
                    )?,
                }],
            )?,
            other => return Err(BadLine::OtherEvent(format!("event_type {other:?}"))),
        };
        notice("id", self.id, trade, event)
    }
}

impl Stripe {
    fn read(self) -> Result<Notice, BadLine> {
        let Object(StripeData {
            object: Object(charge),
        }) = self.data;
        let code = required("data.object.currency", charge.currency)?;
        let currency = currency("data.object.currency", &code)?;
        // Of an authorised amount a part may be captured; the rest was never paid.
        let paid = charge.amount_captured.filter(|captured| *captured > 0);
        let trade = Trade {
            provider: Provider::Stripe,
            trade_no: id("data.object.id", charge.id)?,
            merchant: id("account", self.account)?,
            order_no: id("data.object.metadata.order_id", charge.metadata.0.order_id)?,
            amount: minor(
                "data.object.amount",
                paid.unwrap_or(charge.amount),
                currency,
            )?,
        };
        let says = |what: &str| BadLine::OtherEvent(what.to_owned());
        let event = match &*self.r#type {
            other if !other.starts_with("charge.") => {
                return Err(BadLine::OtherEvent(format!("type {other:?}")));
            }
            _ if charge.paid == Some(false) => return Err(says("a charge with paid = false")),
            // Authorised: the money is held and may be let go again.
            _ if charge.captured == Some(false) => {
                return Err(says("a charge with captured = false"));
            }
            "charge.succeeded" | "charge.captured" | "charge.updated" => Event::Paid,
            "charge.refunded" => {
                let refunds = required("data.object.refunds", charge.refunds)?.0.data;
                let refunds: Result<Vec<_>, _> = refunds
                    .into_iter()
                    .map(|Object(refund)| stripe_refund(refund, currency))
                    .collect();
                refunded(&trade, refunds?)?
            }
            other => return Err(BadLine::OtherEvent(format!("type {other:?}"))),
        };
        notice("id", self.id, trade, event)
    }
}

fn stripe_refund(refund: StripeRefund, of: Currency) -> Result<Refund, BadLine> {
    if let Some(code) = refund.currency
        && currency("data.object.refunds.data.currency", &code)? != of
    {
        return Err(BadLine::OtherCurrency);
    }
    Ok(Refund {
        refund_no: id("data.object.refunds.data.id", refund.id)?,
        amount: minor("data.object.refunds.data.amount", refund.amount, of)?,
    })
}

fn notice(
    field: &'static str,
    notice_id: String,
    trade: Trade,
    event: Event,
) -> Result<Notice, BadLine> {
    Ok(Notice {
        notice_id: id(field, notice_id)?,
        trade,
        event,
    })
}

/// Refunds in the order of their numbers, so that two notices that share some book them in one
/// order and never wait for each other in a circle.
fn refunded(trade: &Trade, mut refunds: Vec<Refund>) -> Result<Event, BadLine> {
    if refunds.is_empty() {
        return Err(BadLine::OtherEvent(
            "its list of refunds is empty".to_owned(),
        ));
    }
    if let Some(refund) = refunds
        .iter()
        .find(|refund| refund.amount.minor() > trade.amount.minor())
    {
        return Err(BadLine::RefundAboveTrade {
            refund: refund.amount,
            trade: trade.amount,
        });
    }
    refunds.sort_by(|a, b| a.refund_no.cmp(&b.refund_no));
    Ok(Event::Refunded(refunds))
}

fn required<T>(field: &'static str, value: Option<T>) -> Result<T, BadLine> {
    value.ok_or(BadLine::Missing { field })
}

/// An id is taken as it is, blanks at its ends and case included; what cannot be one is refused.
fn id(field: &'static str, id: String) -> Result<String, BadLine> {
    let problem = if id.trim().is_empty() {
        "it is empty"
    } else if id.len() > MAX_ID_BYTES {
        "it is too long"
    } else if id.contains(char::is_control) {
        "it has control characters"
    } else {
        return Ok(id);
    };
    Err(BadLine::Id { field, problem })
}

fn currency(field: &'static str, code: &str) -> Result<Currency, BadLine> {
    Currency::parse(code).map_err(|problem| BadLine::Amount { field, problem })
}

fn minor(field: &'static str, minor: u64, currency: Currency) -> Result<Money, BadLine> {
    Money::from_minor(minor, currency).map_err(|problem| BadLine::Amount { field, problem })
}

fn yuan(field: &'static str, text: &str) -> Result<Money, BadLine> {
    Money::from_yuan_text(text).map_err(|problem| BadLine::Amount { field, problem })
}
