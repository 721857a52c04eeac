//! Files of callbacks: made from a seed, or written line by line.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use tokio::process::Command;

use crate::program::example;

/// A folder of the test's own, which goes with the value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("orders-{}-{count}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        text(&path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::fs::remove_dir_all(&self.0).ok();
        }
    }
}

/// A file of callbacks and what must come out.
pub(crate) struct Callbacks {
    _folder: Folder,
    pub(crate) file: String,
    pub(crate) expect: String,
    pub(crate) expected: Value,
}

impl Callbacks {
    pub(crate) async fn of_seed(seed: u64, orders: u64) -> Self {
        let folder = Folder::new();
        let (file, expect) = (
            folder.path().join("in.jsonl"),
            folder.path().join("out.json"),
        );
        let status = Command::new(example("make_callbacks"))
            .args([seed.to_string(), orders.to_string()])
            .args([&file, &expect])
            .status()
            .await
            .unwrap();
        assert!(status.success());
        let expected = serde_json::from_slice(&std::fs::read(&expect).unwrap()).unwrap();
        Self {
            _folder: folder,
            file: text(&file),
            expect: text(&expect),
            expected,
        }
    }

    /// The arguments of a run that must meet what is expected.
    pub(crate) fn args<'a>(&'a self, database: &'a str, concurrency: &'a str) -> [&'a str; 7] {
        [
            &self.file,
            "--expect",
            &self.expect,
            "--database",
            database,
            "--concurrency",
            concurrency,
        ]
    }

    pub(crate) fn count(&self, what: &str) -> i64 {
        self.expected["counts"][what].as_i64().expect("a count")
    }

    /// How many entries the ledger has in the end.
    pub(crate) fn entries(&self) -> i64 {
        self.count("paid_trades") + self.count("refunds")
    }
}

fn text(path: &Path) -> String {
    path.to_str()
        .expect("the temporary folder's name is text")
        .to_owned()
}

/// A WeChat payment of a merchant's only order.
pub(crate) fn paid(trade: &str, amount: u64) -> String {
    format!(
        r#"{{"provider":"wechat","payload":{{"id":"n-{trade}-{amount}","event_type":"TRANSACTION.SUCCESS","mchid":"m","out_trade_no":"o-{trade}","transaction_id":"{trade}","amount":{{"total":{amount}}}}}}}"#
    )
}

/// A Stripe payment, of which there may be several refunds in one notice.
pub(crate) fn charged(trade: &str, amount: u64) -> String {
    charge(trade, amount, "usd")
}

pub(crate) fn charge(trade: &str, amount: u64, currency: &str) -> String {
    stripe("charge.succeeded", trade, amount, currency, "")
}

pub(crate) fn refunded(trade: &str, amount: u64, refunds: &[(&str, u64)]) -> String {
    let refunds: Vec<String> = refunds
        .iter()
        .map(|(id, amount)| format!(r#"{{"id":"{id}","amount":{amount}}}"#))
        .collect();
    let more = format!(r#","refunds":{{"data":[{}]}}"#, refunds.join(","));
    stripe("charge.refunded", trade, amount, "usd", &more)
}

fn stripe(kind: &str, trade: &str, amount: u64, currency: &str, more: &str) -> String {
    format!(
        r#"{{"provider":"stripe","payload":{{"id":"evt","account":"m","type":"{kind}","data":{{"object":{{"id":"{trade}","amount":{amount},"currency":"{currency}","metadata":{{"order_id":"o-{trade}"}}{more}}}}}}}}}"#
    )
}
