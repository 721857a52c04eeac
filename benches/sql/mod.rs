//! The same measurement on each SQL database: the module above names the database's types and holds
//! the statements that differ.

mod attribute;
mod by_hand;

use idem_benches::{Variant, variants};
use serde::{Deserialize, Serialize};

use super::statements::{self, business};
use super::{Pool, Tx};

/// Where calls with a number below this are repeats of recorded ones.
pub(crate) const RECORDED: u64 = 1000;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(crate) struct Order {
    id: i64,
    merchant: String,
    cents: i64,
    note: String,
}

impl Order {
    /// About 200 bytes.
    pub(crate) fn new(id: i64) -> Self {
        Self {
            id,
            merchant: "merchant-7".into(),
            cents: 1299,
            note: "x".repeat(140),
        }
    }
}

pub(crate) fn sections(pool: &Pool) -> Vec<(&'static str, Vec<Variant>)> {
    vec![
        (
            "first run, caller's transaction",
            variants! { pool;
                "by hand" => by_hand::first,
                "attribute" => attribute::first,
                "bare business transaction" => by_hand::bare,
            },
        ),
        (
            "replay, caller's transaction",
            variants! { pool;
                "by hand" => by_hand::replay,
                "attribute" => attribute::replay,
            },
        ),
        (
            "first run, framework's transaction",
            variants! { pool;
                "by hand" => by_hand::first,
                "attribute, tx = name" => attribute::owned_first,
            },
        ),
        (
            "replay, framework's transaction",
            variants! { pool;
                "raw SELECT on the pool" => by_hand::select,
                "attribute, tx = name" => attribute::owned_replay,
            },
        ),
        (
            "50 % duplicates, framework's transaction",
            variants! { pool;
                "raw SELECT, else by hand" => by_hand::mixed::<50>,
                "attribute, tx = name" => attribute::mixed::<50>,
            },
        ),
        (
            "95 % duplicates, framework's transaction",
            variants! { pool;
                "raw SELECT, else by hand" => by_hand::mixed::<95>,
                "attribute, tx = name" => attribute::mixed::<95>,
            },
        ),
    ]
}

/// Makes the tables and the records that replays are asked for.
pub(crate) async fn prepare(pool: &Pool) {
    statements::prepare(pool).await;
    for n in 0..RECORDED {
        attribute::recorded(pool, n).await.expect("a record");
    }
}
