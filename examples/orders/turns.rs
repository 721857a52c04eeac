//! Whose turn it is, among the notices of one trade.
//!
//! Providers repeat themselves at any moment, so notices that say the same run *concurrently*: it
//! is the annotated function that keeps them to one effect. But when two notices of one trade
//! *contradict* each other, the earlier is believed, and "earlier" has to mean the place in the
//! file, not the luck of a scheduler. So a trade's notices form rounds: a round is a run of
//! consecutive notices that say the same; all of a round run at once, and a round starts when the
//! one before it has ended. Notices of different trades never wait for each other.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tokio::sync::watch;

use crate::notice::{Notice, Provider};

/// Held while a notice runs; the round ends with its last one.
pub(crate) struct Turn {
    earlier: Option<watch::Receiver<()>>,
    _member: Arc<watch::Sender<()>>,
}

impl Turn {
    /// Waits for the round before.
    pub(crate) async fn comes(&mut self) {
        if let Some(mut earlier) = self.earlier.take() {
            // Nothing is ever sent: an error says that the last member is gone.
            while earlier.changed().await.is_ok() {}
        }
    }
}

struct Round {
    says: Notice,
    members: Weak<watch::Sender<()>>,
    ended: watch::Receiver<()>,
    earlier: Option<watch::Receiver<()>>,
}

/// The rounds that are running or waiting.
#[derive(Default)]
pub(crate) struct Turns {
    rounds: HashMap<(Provider, String), Round>,
    sweep_at: usize,
}

impl Turns {
    /// The turn of a notice; call it in the order of the file.
    pub(crate) fn next(&mut self, notice: &Notice) -> Turn {
        self.forget_ended_rounds();
        let trade = (notice.trade.provider, notice.trade.trade_no.clone());
        let mut earlier = None;
        if let Some(round) = self.rounds.get(&trade)
            && let Some(member) = round.members.upgrade()
        {
            if round.says.says_the_same(notice) {
                return Turn {
                    earlier: round.earlier.clone(),
                    _member: member,
                };
            }
            earlier = Some(round.ended.clone());
        }
        let (sender, ended) = watch::channel(());
        let member = Arc::new(sender);
        let round = Round {
            says: notice.clone(),
            members: Arc::downgrade(&member),
            ended,
            earlier: earlier.clone(),
        };
        self.rounds.insert(trade, round);
        Turn {
            earlier,
            _member: member,
        }
    }

    /// Now and then, so that a long file's trades do not all stay in memory.
    fn forget_ended_rounds(&mut self) {
        if self.rounds.len() >= self.sweep_at {
            self.rounds
                .retain(|_, round| round.members.strong_count() > 0);
            self.sweep_at = self.rounds.len() * 2 + 64;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::money::{Currency, Money};
    use crate::notice::{Event, Trade};

    fn notice(trade_no: &str, amount: u64) -> Notice {
        Notice {
            notice_id: "n".to_owned(),
            trade: Trade {
                provider: Provider::Stripe,
                trade_no: trade_no.to_owned(),
                merchant: "m".to_owned(),
                order_no: "o".to_owned(),
                amount: Money::from_minor(amount, Currency::CNY).unwrap(),
            },
            event: Event::Paid,
        }
    }

    fn runs(turn: &mut Turn) -> bool {
        // Polled once: a turn that has to wait is not lost by asking.
        let earlier = turn.earlier.clone();
        let now = turn.comes().now_or_never().is_some();
        if !now {
            turn.earlier = earlier;
        }
        now
    }

    #[test]
    fn the_same_runs_at_once_and_another_amount_waits_for_all_of_it() {
        let mut turns = Turns::default();
        let mut first = turns.next(&notice("t", 1));
        let mut again = turns.next(&notice("t", 1));
        let mut other = turns.next(&notice("t", 2));
        let mut third = turns.next(&notice("t", 1));
        assert!(runs(&mut first) && runs(&mut again));
        assert!(!runs(&mut other));
        drop(first);
        assert!(!runs(&mut other), "one of the first round still runs");
        drop(again);
        assert!(
            !runs(&mut third),
            "it waits for the round before, not for an equal one"
        );
        assert!(runs(&mut other));
        drop(other);
        assert!(runs(&mut third));
    }

    #[test]
    fn a_late_member_waits_like_its_round() {
        let mut turns = Turns::default();
        let first = turns.next(&notice("t", 1));
        let mut other = turns.next(&notice("t", 2));
        let mut late = turns.next(&notice("t", 2));
        assert!(!runs(&mut other) && !runs(&mut late));
        drop(first);
        assert!(runs(&mut late) && runs(&mut other));
    }

    #[test]
    fn trades_never_wait_for_each_other_and_ended_ones_are_forgotten() {
        let mut turns = Turns::default();
        let held = turns.next(&notice("held", 1));
        for number in 0..1000 {
            assert!(runs(&mut turns.next(&notice(&number.to_string(), 1))));
        }
        assert!(turns.rounds.len() < 200, "{}", turns.rounds.len());
        assert!(!runs(&mut turns.next(&notice("held", 2))));
        drop(held);
        assert!(runs(&mut turns.next(&notice("held", 3))));
    }
}
