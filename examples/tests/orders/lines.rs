//! What is not a notice, and what is not as expected.

use crate::callbacks::{Callbacks, Folder, paid};
use crate::program::orders;
use crate::shop::Kind;

pub(crate) async fn a_bad_line_is_reported_by_its_number_and_passed_over(kind: Kind) {
    let shop = kind.shop().await;
    let folder = Folder::new();
    let mut content = Vec::new();
    let mut line = |bytes: &[u8]| {
        content.extend_from_slice(bytes);
        content.push(b'\n');
    };
    line(paid("one", 5).as_bytes());
    line(b"");
    line(b"{\"provider\":\"stripe\",\"payload\":");
    line(b"\xff\xfe{}");
    line(&vec![b'['; 3 << 20]);
    line(b"{\"provider\":\"paypal\",\"payload\":{}}");
    line(paid("two", 0).as_bytes());
    line(paid("tw\\u0000o", 5).as_bytes());
    line(paid("two\\u001b[31m", 5).as_bytes());
    line(b"{\"provider\":\"\\u001b[31m\",\"payload\":{}}");
    line(paid("three", 9_223_372_036_854_775_808).as_bytes());
    line(format!("{}\r", paid("two", 6)).as_bytes());
    // The last line has no end.
    content.extend_from_slice(paid("last", 7).as_bytes());
    let file = folder.file("in.jsonl", content);

    let run = orders(&[&*file, "--database", &shop.url()]).await;
    run.ended_with(0)
        .complains("line 2: the line is empty\n")
        .complains("line 3: it is no notice: EOF")
        .complains("line 4: the line is not UTF-8 from byte 1 on\n")
        .complains("line 5: the line has 3145728 bytes, more than 1048576\n")
        .complains("line 6: it is no notice: unknown variant `paypal`")
        .complains("line 7: `amount.total` is no amount: it is zero\n")
        .complains("line 8: `transaction_id` is no id: it has control characters\n")
        .complains("line 9: `transaction_id` is no id: it has control characters\n")
        .complains("line 10: it is no notice: unknown variant `\\u{1b}[31m`")
        .complains("line 11: `amount.total` is no amount: it is too large\n");
    assert!(!run.complaints.contains('\u{1b}'));
    assert_eq!(run.complaints.lines().count(), 10, "{run}");
    assert_eq!(run.number("callbacks"), 13, "{run}");
    assert_eq!(run.number("bad lines"), 10, "{run}");
    assert_eq!(run.number("first runs"), 3, "{run}");
    let orders: Vec<_> = shop
        .ledger()
        .await
        .into_iter()
        .map(|row| (row.1, row.2))
        .collect();
    let booked = [("o-last", 7), ("o-one", 5), ("o-two", 6)];
    assert_eq!(orders, booked.map(|(order, paid)| (order.to_owned(), paid)));
}

pub(crate) async fn a_wrong_expectation_is_told_apart(kind: Kind) {
    let callbacks = Callbacks::of_seed(6, 30).await;
    let shop = kind.shop().await;
    let url = shop.url();
    let folder = Folder::new();
    let wrong = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut expected = callbacks.expected.clone();
        change(&mut expected);
        folder.file("wrong.json", expected.to_string())
    };
    let run = async |expect: &str| {
        orders(&[&*callbacks.file, "--expect", expect, "--database", &url]).await
    };

    run(&callbacks.expect).await.ended_with(0);

    let paid = callbacks.expected["orders"][3]["paid"].as_i64().unwrap();
    let expect = wrong(&|expected| expected["orders"][3]["paid"] = (paid + 1).into());
    let order = callbacks.expected["orders"][3]["order"].as_str().unwrap();
    run(&expect)
        .await
        .ended_with(1)
        .says("not met")
        .says(&format!("{order:?}): expected paid"));

    let paid = callbacks.expected["paid"].as_i64().unwrap();
    let expect = wrong(&|expected| expected["paid"] = (paid - 1).into());
    let difference = format!("paid in all: expected {}, found {paid}", paid - 1);
    run(&expect).await.ended_with(1).says(&difference);

    let expect = wrong(&|expected| {
        expected["orders"].as_array_mut().unwrap().pop();
    });
    run(&expect)
        .await
        .ended_with(1)
        .says("not expected, found paid");

    for count in ["lines", "bad_lines", "paid_trades", "refunds", "mismatches"] {
        let expect = wrong(&|expected| expected["counts"][count] = 123_456.into());
        run(&expect)
            .await
            .ended_with(1)
            .says("expected 123456, found");
    }

    let expect = folder.file("no.json", "{}");
    run(&expect).await.ended_with(2).complains("missing field");
}

#[tokio::test]
async fn what_cannot_be_run_says_why() {
    let folder = Folder::new();
    let empty = folder.file("empty.jsonl", "");
    let missing = folder.path().join("missing.jsonl");
    for (args, why) in [
        (
            [missing.to_str().unwrap(), "--concurrency=1"],
            "missing.jsonl: No such file",
        ),
        (
            [&empty, "--database=mysql://h/d"],
            "neither `sqlite://path` nor `postgres://…`",
        ),
        ([&empty, "--database=sqlite::memory:"], "name a file"),
        (
            [&empty, "--database=sqlite:///no/such/folder/o.db"],
            "cannot be used",
        ),
        // Nobody listens there, and the answer comes at once.
        (
            [&empty, "--database=postgres://me:secret@127.0.0.1:1/d"],
            "the server at 127.0.0.1:1 cannot be used: ",
        ),
        ([&empty, "--concurrency=0"], "0 is not in 1..=1024"),
    ] {
        let run = orders(&args).await;
        run.ended_with(2).complains(why);
        assert!(!run.complaints.contains("secret"), "{run}");
    }
    orders(&[&*empty]).await.ended_with(0);
}
