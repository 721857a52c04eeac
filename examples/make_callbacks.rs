//! Makes payment callbacks as providers send them, and what must come out of them.
//!
//! ```text
//! cargo run --example make_callbacks -- SEED ORDERS OUT.jsonl EXPECTED.json
//! ```
//!
//! The same seed makes the same files. A trade's notices stand in their order, mixed with those of
//! other trades; at the end stand notices that name a known trade with another amount.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Parser;
use idem_examples::SplitMix64;
use serde::Serialize;
use serde_json::{Value, json};

#[derive(Parser)]
struct Args {
    seed: u64,
    orders: u64,
    out: PathBuf,
    expected: PathBuf,
}

#[derive(Default, Serialize)]
struct Expected {
    counts: Counts,
    paid: u64,
    refunded: u64,
    orders: Vec<Row>,
}

#[derive(Default, Serialize)]
struct Counts {
    lines: u64,
    bad_lines: u64,
    paid_trades: u64,
    refunds: u64,
    mismatches: u64,
}

#[derive(Clone, Serialize)]
struct Row {
    merchant: String,
    order: String,
    paid: u64,
    refunded: u64,
}

#[derive(Clone, Copy)]
enum Provider {
    Alipay,
    Wechat,
    Stripe,
}

struct Trade {
    provider: Provider,
    merchant: String,
    order: String,
    number: String,
    amount: u64,
}

/// Names that meet when keys are glued together, folded, trimmed or normalized.
const TRICKY: [(&str, &str); 10] = [
    ("m1:2", "3"),
    ("m1", "2:3"),
    ("M1", "o"),
    ("m1", "O"),
    ("m1", "订单-1"),
    ("m1", "o "),
    ("m1", "o%3A"),
    ("m{1}", "{o}"),
    ("m1", "é"),
    ("m1", "e\u{301}"),
];

const BAD_LINES: [&str; 7] = [
    r#"{"provider":"alipay","payload":{"notify_id":"#,
    r#"{"provider":"unknown","payload":{}}"#,
    "not json",
    r#"{"provider":"wechat","payload":{"id":"x","event_type":"TRANSACTION.SUCCESS","mchid":"m1","out_trade_no":"o","transaction_id":"t","amount":{"total":-5}}}"#,
    r#"{"provider":"alipay","payload":{"notify_id":"x","seller_id":"m1","out_trade_no":"","trade_no":"","trade_status":"TRADE_SUCCESS","total_amount":"1.00"}}"#,
    r#"{"provider":"alipay","payload":{"notify_id":"x","seller_id":"m1","out_trade_no":"q","trade_no":"q","trade_status":"TRADE_SUCCESS","total_amount":"1e3"}}"#,
    r#"{"provider":"stripe","payload":{"id":"e","type":"charge.succeeded","account":"m1","data":{"object":{"id":"c","amount":99999999999999999999}}}}"#,
];

/// How many trades are under way at a time.
const WINDOW: usize = 40;

impl Trade {
    /// `later` is what the provider says of a trade it has reported before.
    fn paid(&self, notice: &str, later: bool) -> Value {
        let Self {
            merchant,
            order,
            number,
            amount,
            ..
        } = self;
        match self.provider {
            Provider::Alipay => json!({
                "notify_id": notice, "notify_type": "trade_status_sync", "seller_id": merchant,
                "out_trade_no": order, "trade_no": number, "total_amount": yuan(*amount),
                "trade_status": if later { "TRADE_FINISHED" } else { "TRADE_SUCCESS" },
                "notify_time": "2026-11-30 08:00:00",
            }),
            Provider::Wechat => json!({
                "id": notice, "event_type": "TRANSACTION.SUCCESS",
                "resource_type": "encrypt-resource", "mchid": merchant, "out_trade_no": order,
                "transaction_id": number, "amount": {"total": amount, "currency": "CNY"},
                "trade_state": "SUCCESS",
            }),
            Provider::Stripe => json!({
                "id": notice, "object": "event", "account": merchant,
                "type": if later { "charge.updated" } else { "charge.succeeded" },
                "data": {"object": {
                    "id": number, "object": "charge", "amount": amount, "currency": "usd",
                    "paid": true, "metadata": {"order_id": order},
                }},
            }),
        }
    }

    fn refunded(&self, notice: &str, refund: &str, part: u64) -> Value {
        let Self {
            merchant,
            order,
            number,
            amount,
            ..
        } = self;
        match self.provider {
            Provider::Alipay => {
                let mut payload = self.paid(notice, false);
                payload["refund_fee"] = yuan(part).into();
                payload["out_request_no"] = refund.into();
                payload
            }
            Provider::Wechat => json!({
                "id": notice, "event_type": "REFUND.SUCCESS", "mchid": merchant,
                "out_trade_no": order, "transaction_id": number, "refund_id": refund,
                "amount": {"total": amount, "refund": part, "currency": "CNY"},
            }),
            Provider::Stripe => json!({
                "id": notice, "object": "event", "account": merchant, "type": "charge.refunded",
                "data": {"object": {
                    "id": number, "object": "charge", "amount": amount, "currency": "usd",
                    "metadata": {"order_id": order},
                    "refunds": {"data": [{"id": refund, "object": "refund", "amount": part}]},
                }},
            }),
        }
    }

    fn line(&self, payload: &Value) -> String {
        let provider = match self.provider {
            Provider::Alipay => "alipay",
            Provider::Wechat => "wechat",
            Provider::Stripe => "stripe",
        };
        format!(r#"{{"provider": "{provider}", "payload": {payload}}}"#)
    }
}

fn yuan(fen: u64) -> String {
    format!("{}.{:02}", fen / 100, fen % 100)
}

struct Maker {
    random: SplitMix64,
    notices: u64,
    counts: Counts,
    rows: BTreeMap<(String, String), Row>,
    late: Vec<String>,
}

impl Maker {
    fn notice_id(&mut self) -> String {
        self.notices += 1;
        format!("n{:08}", self.notices)
    }

    fn trade(&mut self, index: u64) -> Trade {
        let random = &mut self.random;
        let (letter, provider) = *random.pick(&[
            ('a', Provider::Alipay),
            ('w', Provider::Wechat),
            ('s', Provider::Stripe),
        ]);
        let (merchant, order) = match TRICKY.get(index as usize) {
            Some(&(merchant, order)) => (merchant.to_owned(), order.to_owned()),
            None => (format!("m{}", random.between(1, 9)), format!("o{index:06}")),
        };
        let any = random.between(1, 10_000_000);
        Trade {
            provider,
            merchant,
            order,
            number: format!("{letter}t{:012}{index}", random.between(0, 999_999_999_999)),
            amount: *random.pick(&[1, 99, 100, 12_345, any]),
        }
    }

    /// All notices of one trade, in their order.
    fn notices_of(&mut self, trade: &Trade, index: u64) -> VecDeque<String> {
        let key = (trade.merchant.clone(), trade.order.clone());
        let mut row = self.rows.remove(&key).unwrap_or_else(|| Row {
            merchant: trade.merchant.clone(),
            order: trade.order.clone(),
            paid: 0,
            refunded: 0,
        });
        row.paid += trade.amount;
        self.counts.paid_trades += 1;

        let first = trade.line(&trade.paid(&self.notice_id(), false));
        let copies = *self.random.pick(&[1, 1, 2, 3, 6]);
        let mut lines = VecDeque::from(vec![first; copies]);
        if !matches!(trade.provider, Provider::Wechat) && self.random.chance(30) {
            lines.push_back(trade.line(&trade.paid(&self.notice_id(), true)));
        }
        if self.random.chance(5) {
            for _ in 0..50 {
                lines.push_back(trade.line(&trade.paid(&self.notice_id(), false)));
            }
        }
        let mut rest = trade.amount;
        for part in 0..*self.random.pick(&[0, 0, 0, 1, 2]) {
            if rest < 2 {
                break;
            }
            let amount = self.random.between(1, rest / 2);
            rest -= amount;
            let refund = format!("r{index}-{part}");
            let line = trade.line(&trade.refunded(&self.notice_id(), &refund, amount));
            let copies = *self.random.pick(&[1, 2, 3]);
            lines.extend(std::iter::repeat_n(line, copies));
            row.refunded += amount;
            self.counts.refunds += 1;
        }
        self.rows.insert(key, row);
        lines
    }

    /// A notice that names the trade with another amount, for the end of the file.
    fn contradict(&mut self, trade: Trade) {
        let other = Trade {
            amount: trade.amount + 1,
            ..trade
        };
        let line = other.line(&other.paid(&self.notice_id(), false));
        self.late.push(line);
        self.counts.mismatches += 1;
    }

    fn make(mut self, orders: u64) -> (String, Expected) {
        let mut trades = Vec::new();
        for index in 0..orders {
            let trade = self.trade(index);
            trades.push(self.notices_of(&trade, index));
            if self.random.chance(4) {
                self.contradict(trade);
            }
        }
        let mut text = String::new();
        let mut line = |line: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line}");
            self.counts.lines += 1;
        };
        while !trades.is_empty() {
            let last = trades.len().min(WINDOW) - 1;
            let chosen = self.random.between(0, last as u64) as usize;
            match trades[chosen].pop_front() {
                Some(notice) => line(&notice),
                None => {
                    trades.remove(chosen);
                    continue;
                }
            }
            if self.random.chance(1) {
                let bad = self.random.pick(&BAD_LINES);
                line(bad);
                self.counts.bad_lines += 1;
            }
        }
        self.late.iter().for_each(|late| line(late));
        let orders: Vec<Row> = self.rows.into_values().collect();
        let expected = Expected {
            counts: self.counts,
            paid: orders.iter().map(|row| row.paid).sum(),
            refunded: orders.iter().map(|row| row.refunded).sum(),
            orders,
        };
        (text, expected)
    }
}

fn main() -> std::io::Result<()> {
    let args = Args::parse();
    let maker = Maker {
        random: SplitMix64::new(args.seed),
        notices: 0,
        counts: Counts::default(),
        rows: BTreeMap::new(),
        late: Vec::new(),
    };
    let (text, expected) = maker.make(args.orders);
    std::fs::write(&args.out, text)?;
    let mut json = serde_json::to_string_pretty(&expected)?;
    json.push('\n');
    std::fs::write(&args.expected, json)
}
