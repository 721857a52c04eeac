//! Do the books agree with themselves? The ledger is the witness; the other tables are held
//! against it.

use std::collections::{BTreeMap, BTreeSet};

use crate::money::{Currency, Sum};

/// An order's name, merchant and order number, compared byte by byte; and one currency of it.
pub(crate) type OrderKey = (String, String, Currency);

/// What came in for an order and what went back, in minor units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) paid: i64,
    pub(crate) refunded: i64,
}

/// What the ledger says of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Booked {
    pub(crate) sums: Order,
    pub(crate) payments: i64,
    pub(crate) refunds: i64,
}

/// A payment or refund that stands in the ledger more than once.
#[derive(Clone, Debug)]
pub(crate) struct Twice {
    pub(crate) provider: String,
    pub(crate) trade_no: String,
    pub(crate) refund_no: Option<String>,
    pub(crate) times: i64,
}

/// Everything that is booked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    pub(crate) ledger: BTreeMap<OrderKey, Booked>,
    pub(crate) orders: BTreeMap<OrderKey, Order>,
    pub(crate) balances: BTreeMap<(String, Currency), i64>,
    pub(crate) twice: Vec<Twice>,
}

/// The ledger's sums over all orders in one currency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) payments: i64,
    pub(crate) refunds: i64,
    pub(crate) paid: i128,
    pub(crate) refunded: i128,
}

impl Books {
    pub(crate) fn totals(&self) -> BTreeMap<Currency, Totals> {
        let mut totals: BTreeMap<_, Totals> = BTreeMap::new();
        for ((_, _, currency), order) in &self.ledger {
            let sum = totals.entry(*currency).or_default();
            sum.payments += order.payments;
            sum.refunds += order.refunds;
            sum.paid += i128::from(order.sums.paid);
            sum.refunded += i128::from(order.sums.refunded);
        }
        totals
    }

    /// Every place where the books contradict themselves, in words.
    pub(crate) fn contradictions(&self) -> Vec<String> {
        let mut found: Vec<String> = self.twice.iter().map(Twice::to_string).collect();
        let empty = Order::default();
        let keys: BTreeSet<&OrderKey> = self.ledger.keys().chain(self.orders.keys()).collect();
        for key in keys {
            let ledger = self.ledger.get(key).map_or(empty, |booked| booked.sums);
            let order = self.orders.get(key).copied().unwrap_or(empty);
            if ledger != order {
                let (order, ledger) = (order.shown(key.2), ledger.shown(key.2));
                found.push(format!(
                    "order {}: the order says {order}, its ledger entries {ledger}",
                    name(key)
                ));
            }
        }
        let mut sums: BTreeMap<(&str, Currency), i128> = BTreeMap::new();
        for ((merchant, _, currency), booked) in &self.ledger {
            *sums.entry((merchant, *currency)).or_default() +=
                i128::from(booked.sums.paid) - i128::from(booked.sums.refunded);
        }
        let mut balances: BTreeMap<(&str, Currency), i128> = BTreeMap::new();
        for ((merchant, currency), balance) in &self.balances {
            balances.insert((merchant, *currency), i128::from(*balance));
        }
        let accounts: BTreeSet<_> = sums.keys().chain(balances.keys()).copied().collect();
        for account in accounts {
            let ledger = sums.get(&account).copied().unwrap_or(0);
            let balance = balances.get(&account).copied().unwrap_or(0);
            if ledger != balance {
                let (merchant, currency) = account;
                let (ledger, balance) = (Sum(ledger, currency), Sum(balance, currency));
                found.push(format!(
                    "merchant {merchant:?}: the balance is {balance}, its ledger entries {ledger}"
                ));
            }
        }
        found
    }
}

impl Order {
    pub(crate) fn shown(self, currency: Currency) -> String {
        let paid = Sum(self.paid.into(), currency);
        let refunded = Sum(self.refunded.into(), currency);
        format!("paid {paid} refunded {refunded}")
    }
}

/// The order of a key, for people.
pub(crate) fn name((merchant, order, _): &OrderKey) -> String {
    format!("({merchant:?}, {order:?})")
}

impl std::fmt::Display for Twice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            provider,
            trade_no,
            refund_no,
            times,
        } = self;
        match refund_no {
            Some(number) => {
                write!(
                    f,
                    "refund {number:?} of {provider} trade {trade_no:?} is booked {times} times"
                )
            }
            None => write!(
                f,
                "{provider} trade {trade_no:?} is booked as paid {times} times"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn books() -> Books {
        let key = ("m".to_owned(), "o".to_owned(), Currency::CNY);
        let sums = Order {
            paid: 100,
            refunded: 30,
        };
        let booked = Booked {
            sums,
            payments: 1,
            refunds: 2,
        };
        Books {
            ledger: BTreeMap::from([(key.clone(), booked)]),
            orders: BTreeMap::from([(key, sums)]),
            balances: BTreeMap::from([(("m".to_owned(), Currency::CNY), 70)]),
            twice: Vec::new(),
        }
    }

    #[test]
    fn books_that_agree_have_no_contradictions() {
        assert_eq!(books().contradictions(), Vec::<String>::new());
        assert_eq!(Books::default().contradictions(), Vec::<String>::new());
        let totals = books().totals()[&Currency::CNY];
        assert_eq!((totals.payments, totals.refunds), (1, 2));
        assert_eq!((totals.paid, totals.refunded), (100, 30));
    }

    #[test]
    fn every_table_is_held_against_the_ledger() {
        let mut wrong = books();
        wrong.balances.insert(("m".to_owned(), Currency::CNY), 71);
        assert!(wrong.contradictions()[0].contains("the balance is 0.71"));

        let mut wrong = books();
        wrong
            .balances
            .insert(("nobody".to_owned(), Currency::CNY), 1);
        assert!(wrong.contradictions()[0].contains("\"nobody\""));

        let mut wrong = books();
        let yen = Currency::parse("jpy").unwrap();
        wrong.balances.insert(("m".to_owned(), yen), 70);
        assert!(wrong.contradictions()[0].contains("the balance is 70 JPY"));

        let mut wrong = books();
        wrong.orders.clear();
        assert!(wrong.contradictions()[0].contains("the order says paid 0.00"));

        let mut wrong = books();
        wrong.ledger.clear();
        assert_eq!(wrong.contradictions().len(), 2);

        let mut wrong = books();
        wrong.twice.push(Twice {
            provider: "stripe".to_owned(),
            trade_no: "t".to_owned(),
            refund_no: None,
            times: 2,
        });
        assert!(wrong.contradictions()[0].contains("booked as paid 2 times"));
    }
}
