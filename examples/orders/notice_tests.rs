use super::{BadLine, Event, Notice, Provider, parse};
use crate::lines::Line;
use crate::money::{Currency, Money};

fn read(text: &str) -> Result<Notice, BadLine> {
    parse(&Line::Whole(text.into()))
}

fn reason(text: &str) -> String {
    match read(text) {
        Ok(notice) => panic!("taken: {notice:?}"),
        Err(bad) => bad.to_string(),
    }
}

fn alipay(amount: &str, more: &str) -> String {
    format!(
        r#"{{"provider":"alipay","payload":{{"notify_id":"n1","seller_id":"m1","out_trade_no":"o 1 ","trade_no":"t1","trade_status":"TRADE_FINISHED","total_amount":"{amount}","notify_time":"2026-11-30 08:00:00"{more}}}}}"#
    )
}

fn wechat(event: &str, amount: &str, more: &str) -> String {
    format!(
        r#"{{"payload":{{"id":"n1","event_type":"{event}","mchid":"m1","out_trade_no":"订单","transaction_id":"t1","amount":{amount}{more}}},"provider":"wechat"}}"#
    )
}

fn stripe(kind: &str, amount: &str, more: &str) -> String {
    format!(
        r#"{{"provider":"stripe","payload":{{"id":"n1","object":"event","account":"m1","type":"{kind}","data":{{"object":{{"id":"c1","amount":{amount},"currency":"usd","metadata":{{"order_id":"o1"}}{more}}}}}}}}}"#
    )
}

fn money(minor: u64, currency: &str) -> Money {
    Money::from_minor(minor, Currency::parse(currency).unwrap()).unwrap()
}

#[test]
fn a_payment_is_read_from_every_provider() {
    let notice = read(&alipay("12.30", "")).unwrap();
    assert_eq!(notice.event, Event::Paid);
    assert_eq!(notice.trade.provider, Provider::Alipay);
    assert_eq!(notice.trade.amount.minor(), 1230);
    assert_eq!(notice.trade.order_no, "o 1 ", "ids are kept as they are");

    let notice = read(&wechat("TRANSACTION.SUCCESS", r#"{"total":5}"#, "")).unwrap();
    assert_eq!(notice.event, Event::Paid);
    assert_eq!(notice.trade.order_no, "订单");

    for kind in ["charge.succeeded", "charge.updated"] {
        let notice = read(&stripe(kind, "7", r#","paid":true"#)).unwrap();
        assert_eq!(
            (notice.event, notice.trade.amount.minor()),
            (Event::Paid, 7)
        );
    }
}

#[test]
fn refunds_are_read_from_every_provider() {
    let refunds = |text: &str| match read(text).unwrap().event {
        Event::Refunded(refunds) => refunds
            .into_iter()
            .map(|refund| (refund.refund_no, refund.amount.minor()))
            .collect::<Vec<_>>(),
        Event::Paid => panic!("a payment"),
    };
    let text = alipay("12.30", r#","refund_fee":"0.30","out_request_no":"r1""#);
    assert_eq!(refunds(&text), [("r1".to_owned(), 30)]);
    let amount = r#"{"total":1230,"refund":1230}"#;
    let text = wechat("REFUND.SUCCESS", amount, r#","refund_id":"r1""#);
    assert_eq!(refunds(&text), [("r1".to_owned(), 1230)]);
    let more = r#","refunds":{"data":[{"id":"r2","amount":2},{"id":"r1","amount":1}]}"#;
    let text = stripe("charge.refunded", "7", more);
    assert_eq!(refunds(&text), [("r1".to_owned(), 1), ("r2".to_owned(), 2)]);
}

#[test]
fn two_notices_say_the_same_under_different_ids() {
    let one = read(&alipay("12.30", "")).unwrap();
    let mut other = one.clone();
    other.notice_id = "n2".to_owned();
    assert!(one.says_the_same(&other));
    other.trade.amount = money(1, "cny");
    assert!(!one.says_the_same(&other));
    other.trade.amount = money(1230, "cny");
    assert!(one.says_the_same(&other));
    other.trade.amount = money(1230, "usd");
    assert!(!one.says_the_same(&other));
}

#[test]
fn every_bad_line_says_why() {
    for (text, why) in [
        ("", "the line is empty"),
        (" \t\r", "the line is empty"),
        ("not json", "expected"),
        ("[]", "expected an object"),
        (r#"["wechat",{}]"#, "expected an object"),
        (
            r#"{"provider":"alipay","payload":["n9","m1","o2","t9","TRADE_SUCCESS","1.00",null,null]}"#,
            "expected an object",
        ),
        (
            r#"{"payload":["n9","m1","o2","t9","TRADE_SUCCESS","1.00",null,null],"provider":"alipay"}"#,
            "expected an object",
        ),
        (
            &wechat("TRANSACTION.SUCCESS", r#"[5,null,"CNY"]"#, ""),
            "expected an object",
        ),
        (
            &stripe("charge.succeeded", "5", "").replace(r#"{"order_id":"o1"}"#, r#"["o1"]"#),
            "expected an object",
        ),
        (
            &wechat(
                "TRANSACTION.SUCCESS",
                r#"{"total":5,"currency":"yuan"}"#,
                "",
            ),
            "`amount.currency` is no amount: it is not a currency",
        ),
        (
            &wechat(
                "TRANSACTION.SUCCESS",
                r#"{"total":5}"#,
                r#","trade_state":"REFUND""#,
            ),
            "trade_state \"REFUND\"",
        ),
        (
            &stripe("charge.succeeded", "5", "").replace(r#""currency":"usd","#, ""),
            "`data.object.currency` is missing",
        ),
        (
            &stripe("charge.succeeded", "5", r#","captured":false"#),
            "captured = false",
        ),
        (
            &stripe(
                "charge.refunded",
                "5",
                r#","captured":false,"refunds":{"data":[{"id":"r","amount":5}]}"#,
            ),
            "captured = false",
        ),
        (
            &stripe(
                "charge.refunded",
                "5",
                r#","refunds":{"data":[{"id":"r","amount":5,"currency":"jpy"}]}"#,
            ),
            "in another currency",
        ),
        ("null", "expected"),
        (r#"{"provider":"alipay","payload":{"notify_id":"#, "EOF"),
        (
            r#"{"provider":"unknown","payload":{}}"#,
            "unknown variant `unknown`",
        ),
        (r#"{"provider":"alipay"}"#, "missing field `payload`"),
        (
            r#"{"provider":"alipay","payload":{}}"#,
            "missing field `notify_id`",
        ),
        (&format!("{} x", alipay("1", "")), "trailing characters"),
        (
            &alipay("1e3", ""),
            "`total_amount` is no amount: it is not a plain decimal",
        ),
        (&alipay("", ""), "`total_amount` is no amount: it is empty"),
        (&alipay("-1.00", ""), "not a plain decimal"),
        (&alipay("1.001", ""), "more than two decimals"),
        (&alipay("99999999999999999999", ""), "too large"),
        (
            &alipay("1.00", r#","refund_fee":"0.10""#),
            "`out_request_no` is missing",
        ),
        (
            &alipay("1.00", r#","out_request_no":"r""#),
            "`refund_fee` is missing",
        ),
        (
            &alipay("1.00", r#","out_request_no":"r","refund_fee":"1.01""#),
            "it refunds 1.01 CNY of a trade of 1.00 CNY",
        ),
        (
            &alipay("1.00", "").replace("o 1 ", ""),
            "`out_trade_no` is no id: it is empty",
        ),
        (
            &alipay("1.00", "").replace("t1", "  "),
            "`trade_no` is no id: it is empty",
        ),
        (
            &alipay("1.00", "").replace("n1", ""),
            "`notify_id` is no id: it is empty",
        ),
        (
            &alipay("1.00", "").replace("m1", r"\u0000"),
            "`seller_id` is no id: it has control",
        ),
        (
            &alipay("1.00", "").replace("m1", &"m".repeat(257)),
            "`seller_id` is no id: it is too long",
        ),
        (
            &alipay("1.00", "").replace("_FINISHED", "_CLOSED"),
            "trade_status \"TRADE_CLOSED\"",
        ),
        (
            &wechat("TRANSACTION.SUCCESS", r#"{"total":-5}"#, ""),
            "invalid value: integer `-5`",
        ),
        (
            &wechat("TRANSACTION.SUCCESS", r#"{"total":0}"#, ""),
            "it is zero",
        ),
        (
            &wechat("TRANSACTION.SUCCESS", r#"{"total":"5"}"#, ""),
            "invalid type: string",
        ),
        (
            &wechat("REFUND.SUCCESS", r#"{"total":5}"#, ""),
            "`refund_id` is missing",
        ),
        (
            &wechat("REFUND.SUCCESS", r#"{"total":5}"#, r#","refund_id":"r""#),
            "`amount.refund` is missing",
        ),
        (
            &wechat("COUPON.USE", r#"{"total":5}"#, ""),
            "event_type \"COUPON.USE\"",
        ),
        (
            &stripe("charge.succeeded", "99999999999999999999", ""),
            "invalid type: floating point",
        ),
        (
            &stripe("charge.succeeded", "18446744073709551615", ""),
            "too large",
        ),
        (
            &stripe("charge.succeeded", "1.5", ""),
            "invalid type: floating point",
        ),
        (&stripe("charge.failed", "1", ""), "type \"charge.failed\""),
        (
            &stripe("charge.updated", "1", r#","paid":false"#),
            "paid = false",
        ),
        (
            &stripe("charge.refunded", "1", ""),
            "`data.object.refunds` is missing",
        ),
        (
            &stripe("charge.refunded", "1", r#","refunds":{"data":[]}"#),
            "list of refunds is empty",
        ),
        (
            &stripe(
                "charge.refunded",
                "1",
                r#","refunds":{"data":[{"id":"","amount":1}]}"#,
            ),
            "`data.object.refunds.data.id` is no id",
        ),
    ] {
        let reason = reason(text);
        assert!(reason.contains(why), "{text}\n  {reason}\n  lacks {why:?}");
        assert!(!reason.contains("at line"), "{reason}");
    }
}

#[test]
fn what_is_no_text_or_no_line_is_refused_before_it_is_read() {
    let bad = parse(&Line::Whole(b"{\"provider\":\"\xff\"}".to_vec())).unwrap_err();
    assert_eq!(bad.to_string(), "the line is not UTF-8 from byte 14 on");
    let bad = parse(&Line::TooLong { bytes: 5_000_000 }).unwrap_err();
    assert!(bad.to_string().contains("5000000 bytes"));
    assert!(reason(&"[".repeat(100_000)).contains("expected"));
    assert!(
        reason(&format!(
            r#"{{"provider":"alipay","payload":{}"#,
            "[".repeat(100_000)
        ))
        .contains("invalid type")
    );
}

/// Authorised, then captured in part: one payment, of what was captured.
#[test]
fn msg_19_a_charge_is_paid_when_it_is_captured() {
    let captured = r#","captured":true,"amount_captured":700"#;
    let notice = read(&stripe("charge.captured", "1000", captured)).unwrap();
    assert_eq!(notice.event, Event::Paid);
    assert_eq!(notice.trade.amount, money(700, "usd"));
}
