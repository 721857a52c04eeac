//! Notices that contradict what is known.

use crate::callbacks::{Folder, charged, paid, refunded};
use crate::program::{Run, orders};
use crate::shop::{Kind, Shop};

async fn book(shop: &Shop, lines: &[String]) -> Run {
    let folder = Folder::new();
    let file = folder.file("in.jsonl", lines.join("\n"));
    orders(&[&*file, "--database", &shop.url(), "--concurrency", "64"]).await
}

fn row(trade: &str, paid: i64, refunded: i64) -> (String, String, i64, i64) {
    ("m".to_owned(), format!("o-{trade}"), paid, refunded)
}

pub(crate) async fn the_earlier_notice_is_believed_at_any_concurrency(kind: Kind) {
    let shop = kind.shop().await;
    let trades: Vec<String> = (10..50).map(|trade: u32| trade.to_string()).collect();
    // As close to each other as they get: those of one trade are all in flight together.
    let lines: Vec<String> = trades
        .iter()
        .flat_map(|trade| {
            let contradicting = std::iter::repeat_n(paid(trade, 101), 8);
            std::iter::once(paid(trade, 100))
                .chain(contradicting)
                .chain([paid(trade, 100), paid(trade, 100)])
        })
        .collect();
    for (booked, replayed) in [(40, 40 * 2), (0, 40 * 3)] {
        let run = book(&shop, &lines).await;
        run.ended_with(0)
            .complains("line 2: the key is known with another payload");
        assert_eq!(run.number("first runs"), booked, "{run}");
        assert_eq!(run.number("replays"), replayed, "{run}");
        assert_eq!(run.number("refused"), 40 * 8, "{run}");
        let expected: Vec<_> = trades.iter().map(|trade| row(trade, 100, 0)).collect();
        assert_eq!(shop.ledger().await, expected);
        shop.is_consistent().await;
    }
}

pub(crate) async fn a_refund_must_agree_with_its_trade(kind: Kind) {
    let shop = kind.shop().await;
    let lines = [
        charged("a", 100),
        refunded("a", 100, &[("r1", 60)]),
        refunded("a", 100, &[("r1", 61)]),
        refunded("a", 101, &[("r2", 1)]),
        refunded("a", 100, &[("r3", 41)]),
        refunded("a", 100, &[("r4", 40)]),
        // The refund comes before its payment, and the payment has to agree with it.
        refunded("b", 50, &[("r1", 50)]),
        charged("b", 51),
        charged("b", 50),
    ];
    // In the second run the payment is known as well, so the framework refuses it by itself.
    let known = "the key is known with another payload";
    for (first_runs, line_8) in [(5, "its trade is known as 0.50 USD"), (0, known)] {
        let run = book(&shop, &lines).await;
        run.ended_with(1)
            .complains("line 3: the key is known with another payload")
            .complains("line 4: its trade is known as 1.00 USD for order \"o-a\" of \"m\"")
            .complains("line 5: refund \"r3\" of 0.41 USD exceeds what is left of its trade")
            .complains(&format!("line 8: {line_8}"));
        assert_eq!(run.number("first runs"), first_runs, "{run}");
        assert_eq!(run.number("refused"), 3, "{run}");
        assert_eq!(run.number("failed"), 1, "{run}");
        assert_eq!(shop.ledger().await, [row("a", 100, 100), row("b", 50, 50)]);
        shop.is_consistent().await;
    }
}

pub(crate) async fn a_notice_is_booked_whole_or_not_at_all(kind: Kind) {
    let shop = kind.shop().await;
    let lines = [
        charged("a", 100),
        refunded("a", 100, &[("r2", 20), ("r1", 10)]),
        refunded("a", 100, &[("r1", 10), ("r2", 20)]),
        refunded("a", 100, &[("r3", 30), ("r1", 10), ("r2", 20)]),
        // The first two of this are right, and go with the third.
        refunded("a", 100, &[("r0", 1), ("r1", 10), ("r2", 21)]),
        refunded("a", 100, &[("r4", 1), ("r4", 1)]),
    ];
    let run = book(&shop, &lines).await;
    run.ended_with(0)
        .complains("line 5: the key is known with another payload");
    assert_eq!(run.number("first runs"), 4, "{run}");
    assert_eq!(run.number("replays"), 1, "{run}");
    assert_eq!(run.number("refused"), 1, "{run}");
    assert_eq!(run.number("refunded"), 4, "{run}");
    assert_eq!(shop.ledger().await, [row("a", 100, 61)]);
    shop.is_consistent().await;
}
