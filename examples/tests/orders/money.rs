//! Currencies, and sums that no column holds.

use crate::callbacks::{Folder, charge, paid};
use crate::program::{Run, orders};
use crate::shop::{Kind, Shop};

async fn book(shop: &Shop, content: impl AsRef<[u8]>) -> Run {
    let folder = Folder::new();
    let file = folder.file("in.jsonl", content);
    orders(&[&*file, "--database", &shop.url(), "--concurrency", "1"]).await
}

/// A Stripe charge for the order `o`.
fn of_one_order(trade: &str, amount: u64, currency: &str) -> String {
    charge(trade, amount, currency).replace(&format!("o-{trade}"), "o")
}

/// A thousand yen are not ten dollars, and neither is a Hong Kong dollar.
pub(crate) async fn msg_20_amounts_of_two_currencies_are_never_added(kind: Kind) {
    let shop = kind.shop().await;
    let lines = [
        of_one_order("a", 1000, "jpy"),
        of_one_order("b", 1000, "usd"),
        of_one_order("c", 1000, "hkd"),
        of_one_order("b", 1000, "USD"),
        of_one_order("b", 1000, "jpy"),
    ];
    let run = book(&shop, lines.join("\n")).await;
    run.ended_with(0)
        .complains("line 5: the key is known with another payload")
        .says(" 1000 JPY\n")
        .says(" 10.00 USD\n")
        .says(" 10.00 HKD\n");
    assert!(!run.out.contains("30.00"), "{run}");
    assert_eq!(run.number("first runs"), 3, "{run}");
    assert_eq!(run.number("replays"), 1, "{run}");
    assert_eq!(run.number("refused"), 1, "{run}");
    let sums = [("HKD", 1000), ("JPY", 1000), ("USD", 1000)];
    let sums = sums.map(|(currency, sum)| (currency.to_owned(), sum));
    assert_eq!(shop.balances().await, sums);
}

pub(crate) async fn a_sum_that_no_column_holds_is_told_as_such(kind: Kind) {
    let shop = kind.shop().await;
    let most = u64::try_from(i64::MAX).unwrap();
    let lines = [
        of_one_order("a", most, "jpy"),
        of_one_order("b", 1, "jpy"),
        of_one_order("c", 1, "usd"),
        charge("d", 1, "jpy"),
    ];
    let run = book(&shop, lines.join("\n")).await;
    run.ended_with(1)
        .complains("line 2: with 1 JPY the sum of the order is more than can be booked\n")
        .complains("line 4: with 1 JPY the sum of the merchant is more than can be booked\n")
        .says(" 9223372036854775807 JPY\n");
    assert_eq!(run.number("failed"), 2, "{run}");
    assert_eq!(run.number("first runs"), 2, "{run}");
}

/// Money that is only held is not a payment, whatever comes later.
pub(crate) async fn a_charge_is_booked_when_it_is_captured(kind: Kind) {
    let shop = kind.shop().await;
    let held =
        of_one_order("a", 1000, "usd").replace("\"id\":\"a\"", "\"id\":\"a\",\"captured\":false");
    let captured = of_one_order("a", 1000, "usd")
        .replace(
            "\"id\":\"a\"",
            "\"id\":\"a\",\"captured\":true,\"amount_captured\":700",
        )
        .replace("charge.succeeded", "charge.captured");
    let lines = [held, captured.clone(), captured];
    let run = book(&shop, lines.join("\n")).await;
    run.ended_with(0).complains(
        "line 1: it reports neither a payment nor a refund: a charge with captured = false",
    );
    assert_eq!(run.number("first runs"), 1, "{run}");
    assert_eq!(run.number("replays"), 1, "{run}");
    assert_eq!(shop.balances().await, [("USD".to_owned(), 700)]);
}

pub(crate) async fn a_mark_at_the_beginning_loses_no_line(kind: Kind) {
    let shop = kind.shop().await;
    let content = format!("\u{feff}{}\n{}\n", paid("one", 5), paid("two", 6));
    let run = book(&shop, content).await;
    run.ended_with(0);
    assert_eq!(run.number("first runs"), 2, "{run}");
    assert_eq!(run.complaints, "", "no bar, no complaint");
}
