//! The Redis store against the same steps written by hand and against the bare commands.

mod attribute;
mod by_hand;
mod steps;

use std::time::Duration;

use idem::store::redis::RedisStore;
use idem_benches::{Variant, compare, variants};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo};

use crate::Measured;

pub(crate) use attribute::replay;

/// Where calls with a number below this are repeats of recorded ones.
pub(crate) const RECORDED: u64 = 1000;

/// What both sides work on: the same server over connections with the same settings.
#[derive(Clone)]
pub(crate) struct Both {
    pub(crate) store: RedisStore,
    pub(crate) raw: MultiplexedConnection,
}

pub(crate) async fn compare_all(url: &str, how: &Measured) {
    let both = connect(url).await;
    prepare(&both).await;
    for (title, variants) in sections(&both) {
        if !how.wants(title) {
            continue;
        }
        for clients in &how.callers {
            compare(title, &variants, *clients, how.plan, &how.servers).await;
            // First runs leave records: the next section is not to pay for them.
            let _: () = redis::cmd("FLUSHDB")
                .query_async(&mut both.raw.clone())
                .await
                .expect("a clean server");
            prepare(&both).await;
        }
    }
}

/// The server's process.
pub(crate) async fn process(url: &str) -> u32 {
    let mut raw = connect(url).await.raw;
    let info: String = redis::cmd("INFO")
        .arg("server")
        .query_async(&mut raw)
        .await
        .expect("INFO");
    info.lines()
        .find_map(|line| line.strip_prefix("process_id:"))
        .and_then(|pid| pid.trim().parse().ok())
        .expect("the server's process")
}

pub(crate) async fn connect(url: &str) -> Both {
    let info = url.into_connection_info().expect("a Redis URL");
    let tcp = TcpSettings::default().set_nodelay(true);
    let client = Client::open(info.set_tcp_settings(tcp)).expect("a client");
    // The machine may be busy; the store has its own limit.
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(20)));
    let raw = client
        .get_multiplexed_async_connection_with_config(&config)
        .await;
    Both {
        store: RedisStore::builder()
            .limit(Duration::from_secs(20))
            .connect(url)
            .await
            .expect("a server"),
        raw: raw.expect("a server"),
    }
}

fn sections(both: &Both) -> Vec<(&'static str, Vec<Variant>)> {
    vec![
        (
            "Redis: replay",
            variants! { both;
                "raw GET" => by_hand::get,
                "SET NX GET PX by hand" => by_hand::set_nx_get,
                "store" => steps::replay,
            },
        ),
        (
            "Redis: replay, decoded",
            variants! { both;
                "raw GET, decoded" => by_hand::get_decoded,
                "attribute" => attribute::replay,
            },
        ),
        (
            "Redis: first run",
            variants! { both;
                "SET NX PX, SET PX by hand (no owner check)" => by_hand::first_unchecked,
                "SET NX GET PX, owner-checking script by hand" => by_hand::first,
                "store" => steps::first,
                "attribute" => attribute::first,
            },
        ),
        (
            "Redis: 50 % duplicates",
            variants! { both;
                "SET NX GET PX, owner-checking script by hand" => by_hand::mixed::<50>,
                "store" => steps::mixed::<50>,
            },
        ),
        (
            "Redis: 95 % duplicates",
            variants! { both;
                "SET NX GET PX, owner-checking script by hand" => by_hand::mixed::<95>,
                "store" => steps::mixed::<95>,
            },
        ),
    ]
}

pub(crate) async fn prepare(both: &Both) {
    for n in 0..RECORDED {
        steps::recorded(&both.store, n).await.expect("a record");
        attribute::recorded(&both.store, n).await.expect("a record");
    }
}
