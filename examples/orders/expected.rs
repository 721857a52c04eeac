//! What must come out of a file, and where it did not.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::audit::{Books, Order, OrderKey, name};
use crate::money::Currency;
use crate::run::Tally;

/// The file of expectations. Amounts are minor units; the two sums add up those of all currencies,
/// as a checksum.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expected {
    counts: Counts,
    paid: i128,
    refunded: i128,
    orders: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    lines: u64,
    bad_lines: u64,
    paid_trades: i64,
    refunds: i64,
    mismatches: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    merchant: String,
    order: String,
    /// Needed where an order has several.
    currency: Option<String>,
    paid: i64,
    refunded: i64,
}

impl Row {
    /// The row's key; without a currency that of the books, if they have one for the order.
    fn key(&self, books: &Books) -> Result<OrderKey, String> {
        let of = |currency| (self.merchant.clone(), self.order.clone(), currency);
        if let Some(code) = &self.currency {
            return Currency::parse(code)
                .map(of)
                .map_err(|problem| format!("currency {code:?} of {}: {problem}", self.name()));
        }
        let mut currencies = books
            .ledger
            .keys()
            .filter(|(merchant, order, _)| (merchant, order) == (&self.merchant, &self.order))
            .map(|(_, _, currency)| *currency);
        match (currencies.next(), currencies.next()) {
            (Some(_), Some(_)) => Err(format!(
                "order {}: expected in one currency, found in several",
                self.name()
            )),
            (only, _) => Ok(of(only.unwrap_or(Currency::CNY))),
        }
    }

    fn name(&self) -> String {
        format!("({:?}, {:?})", self.merchant, self.order)
    }
}

impl Expected {
    /// Every difference, in words. Counts of lines come from the run; everything about money comes
    /// from the ledger.
    pub(crate) fn differences(&self, tally: &Tally, books: &Books) -> Vec<String> {
        let totals = books.totals();
        let totals = totals.values();
        let mut found = Vec::new();
        for (what, expected, actual) in [
            ("lines", self.counts.lines.into(), tally.lines.into()),
            (
                "bad lines",
                self.counts.bad_lines.into(),
                tally.bad_lines.into(),
            ),
            (
                "mismatches",
                self.counts.mismatches.into(),
                tally.mismatches.into(),
            ),
            (
                "paid trades",
                self.counts.paid_trades.into(),
                totals.clone().map(|sum| i128::from(sum.payments)).sum(),
            ),
            (
                "refunds",
                self.counts.refunds.into(),
                totals.clone().map(|sum| i128::from(sum.refunds)).sum(),
            ),
            (
                "paid in all",
                self.paid,
                totals.clone().map(|sum| sum.paid).sum(),
            ),
            (
                "refunded in all",
                self.refunded,
                totals.map(|sum| sum.refunded).sum(),
            ),
        ] {
            if expected != actual {
                found.push(format!("{what}: expected {expected}, found {actual}"));
            }
        }
        let mut rows: BTreeMap<OrderKey, Order> = BTreeMap::new();
        for row in &self.orders {
            let key = match row.key(books) {
                Ok(key) => key,
                Err(problem) => {
                    found.push(problem);
                    continue;
                }
            };
            let Row { paid, refunded, .. } = *row;
            if rows.insert(key, Order { paid, refunded }).is_some() {
                found.push(format!("order {} is expected twice", row.name()));
            }
        }
        let keys: BTreeSet<&OrderKey> = rows.keys().chain(books.ledger.keys()).collect();
        for key in keys {
            let (order, shown) = (name(key), |sums: Order| sums.shown(key.2));
            match (rows.get(key), books.ledger.get(key)) {
                (Some(expected), Some(actual)) if *expected != actual.sums => found.push(format!(
                    "order {order}: expected {}, found {}",
                    shown(*expected),
                    shown(actual.sums)
                )),
                (Some(expected), None) => found.push(format!(
                    "order {order}: expected {}, not in the ledger",
                    shown(*expected)
                )),
                (None, Some(actual)) => found.push(format!(
                    "order {order}: not expected, found {}",
                    shown(actual.sums)
                )),
                _ => {}
            }
        }
        found
    }

    pub(crate) fn orders(&self) -> usize {
        self.orders.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Booked;

    fn expected() -> Expected {
        serde_json::from_str(
            r#"{"counts": {"lines": 3, "bad_lines": 1, "paid_trades": 1, "refunds": 0, "mismatches": 1},
                "paid": 5, "refunded": 0,
                "orders": [{"merchant": "m", "order": "o ", "paid": 5, "refunded": 0}]}"#,
        )
        .unwrap()
    }

    fn outcome() -> (Tally, Books) {
        let tally = Tally {
            lines: 3,
            bad_lines: 1,
            booked: 1,
            mismatches: 1,
            ..Tally::default()
        };
        let booked = Booked {
            sums: Order {
                paid: 5,
                refunded: 0,
            },
            payments: 1,
            refunds: 0,
        };
        let mut books = Books::default();
        books
            .ledger
            .insert(("m".to_owned(), "o ".to_owned(), Currency::CNY), booked);
        (tally, books)
    }

    #[test]
    fn what_is_as_expected_has_no_differences() {
        let (tally, books) = outcome();
        assert_eq!(expected().differences(&tally, &books), Vec::<String>::new());
    }

    #[test]
    fn it_makes_no_difference_which_run_booked_it() {
        let (mut tally, books) = outcome();
        (tally.booked, tally.replayed) = (0, 1);
        assert_eq!(expected().differences(&tally, &books), Vec::<String>::new());
    }

    #[test]
    fn every_count_and_every_order_is_compared() {
        let (tally, books) = outcome();
        let mut wrong = expected();
        wrong.counts.bad_lines = 2;
        wrong.counts.refunds = 1;
        wrong.paid = 6;
        let found = wrong.differences(&tally, &books);
        assert_eq!(
            found,
            [
                "bad lines: expected 2, found 1",
                "refunds: expected 1, found 0",
                "paid in all: expected 6, found 5"
            ]
        );

        let mut wrong = expected();
        wrong.orders[0].order = "o".to_owned();
        let found = wrong.differences(&tally, &books);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains(r#"("m", "o"): expected paid 0.05"#));
        assert!(found[1].contains(r#"("m", "o "): not expected"#));

        let mut wrong = expected();
        wrong.orders[0].paid = 4;
        let found = wrong.differences(&tally, &books);
        assert!(found[0].contains("expected paid 0.04 CNY refunded 0.00 CNY, found paid 0.05 CNY"));
    }

    #[test]
    fn an_order_in_two_currencies_is_expected_in_both() {
        let (tally, mut books) = outcome();
        let yen = Currency::parse("jpy").unwrap();
        let key = ("m".to_owned(), "o ".to_owned(), yen);
        let booked = books.ledger.values().next().copied().unwrap();
        books.ledger.insert(key, booked);
        let mut both = expected();
        both.counts.paid_trades = 2;
        both.paid = 10;
        let found = both.differences(&tally, &books);
        assert!(
            found[0].contains("in one currency, found in several"),
            "{found:?}"
        );
        let row = |currency: &str| Row {
            merchant: "m".to_owned(),
            order: "o ".to_owned(),
            currency: Some(currency.to_owned()),
            paid: 5,
            refunded: 0,
        };
        both.orders = vec![row("CNY"), row("jpy")];
        assert_eq!(both.differences(&tally, &books), Vec::<String>::new());
    }
}
