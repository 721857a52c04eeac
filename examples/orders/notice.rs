//! What a callback says, whoever sent it; and why a line is none.

use std::fmt;

use idem::KeyPart;
use serde::Serialize;

use crate::lines::{Line, MAX_LINE};
use crate::money::{Money, NotMoney};
use crate::object::Object;
use crate::wire::Callback;

/// Who sent it. Trade numbers are a provider's own: two providers may use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, KeyPart)]
pub(crate) enum Provider {
    #[key_part(rename = "alipay")]
    Alipay,
    #[key_part(rename = "wechat")]
    Wechat,
    #[key_part(rename = "stripe")]
    Stripe,
}

impl Provider {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Alipay => "alipay",
            Self::Wechat => "wechat",
            Self::Stripe => "stripe",
        }
    }
}

/// One payment at a provider: what it is for and how much it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Trade {
    pub(crate) provider: Provider,
    pub(crate) trade_no: String,
    pub(crate) merchant: String,
    pub(crate) order_no: String,
    pub(crate) amount: Money,
}

/// Money given back on a trade, under the refund's own number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Refund {
    pub(crate) refund_no: String,
    pub(crate) amount: Money,
}

/// What has happened to a trade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Paid,
    /// At least one refund, in the order of their numbers.
    Refunded(Vec<Refund>),
}

/// One callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// Of this notice, not of what it says: the provider may say the same under another one.
    pub(crate) notice_id: String,
    pub(crate) trade: Trade,
    pub(crate) event: Event,
}

impl Notice {
    /// Whether the two say the same, under whatever id.
    pub(crate) fn says_the_same(&self, other: &Self) -> bool {
        self.trade == other.trade && self.event == other.event
    }
}

/// Why a line is no notice.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadLine {
    #[error("the line is empty")]
    Empty,
    #[error("the line has {0} bytes, more than {MAX_LINE}")]
    TooLong(u64),
    #[error("the line is not UTF-8 from byte {} on", .0 + 1)]
    NotUtf8(usize),
    #[error("it is no notice: {0}")]
    Json(JsonProblem),
    #[error("`{field}` is no amount: {problem}")]
    Amount {
        field: &'static str,
        problem: NotMoney,
    },
    #[error("`{field}` is no id: {problem}")]
    Id {
        field: &'static str,
        problem: &'static str,
    },
    #[error("it reports neither a payment nor a refund: {0}")]
    OtherEvent(String),
    #[error("`{field}` is missing")]
    Missing { field: &'static str },
    #[error("it refunds {refund} of a trade of {trade}")]
    RefundAboveTrade { refund: Money, trade: Money },
    #[error("it refunds in another currency than its trade's")]
    OtherCurrency,
}

/// A JSON error without the position in lines, which would be mistaken for the file's.
#[derive(Debug)]
pub(crate) struct JsonProblem(serde_json::Error);

impl fmt::Display for JsonProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        let position = format!(" at line {} column {}", self.0.line(), self.0.column());
        match text.strip_suffix(&position) {
            Some(what) => write!(f, "{what} (column {})", self.0.column()),
            None => f.write_str(&text),
        }
    }
}

impl From<serde_json::Error> for BadLine {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(JsonProblem(error))
    }
}

/// Reads one line of the file.
pub(crate) fn parse(line: &Line) -> Result<Notice, BadLine> {
    let bytes = match line {
        Line::Whole(bytes) => bytes,
        Line::TooLong { bytes } => return Err(BadLine::TooLong(*bytes)),
    };
    let text = str::from_utf8(bytes).map_err(|error| BadLine::NotUtf8(error.valid_up_to()))?;
    if text.trim().is_empty() {
        return Err(BadLine::Empty);
    }
    serde_json::from_str::<Object<Callback>>(text)?.0.read()
}

#[cfg(test)]
#[path = "notice_tests.rs"]
mod tests;
