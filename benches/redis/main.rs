//! The Redis store against the same steps written by hand and against the bare commands.
//!
//! `IDEM_TEST_SERVERS=redis scripts/test --servers-only -- cargo run --release -p idem-benches --bin bench-redis`
#![allow(clippy::print_stdout, clippy::expect_used)]

mod attribute;
mod by_hand;
mod steps;

use std::time::Duration;

use clap::Parser;
use idem::store::redis::RedisStore;
use idem_benches::cpu::Servers;
use idem_benches::{Plan, Variant, compare};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo};

#[derive(Parser)]
struct Args {
    /// Redis; the server should be on this machine.
    #[arg(long, env = "IDEM_TEST_REDIS_URL")]
    server: String,
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Seconds a variant and round.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Only sections whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Callers.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 32])]
    callers: Vec<usize>,
}

/// Where calls with a number below this are repeats of recorded ones.
const RECORDED: u64 = 1000;

/// What both sides work on: the same server over connections with the same settings.
#[derive(Clone)]
struct Both {
    store: RedisStore,
    raw: MultiplexedConnection,
}

#[tokio::main]
async fn main() {
    let args = Args::parse();
    let both = connect(&args.server).await;
    let mut raw = both.raw.clone();
    let info: String = redis::cmd("INFO")
        .arg("server")
        .query_async(&mut raw)
        .await
        .expect("INFO");
    let pid = info
        .lines()
        .find_map(|line| line.strip_prefix("process_id:"));
    let pid = pid
        .and_then(|pid| pid.trim().parse().ok())
        .expect("the server's process");
    prepare(&both).await;
    let plan = Plan {
        rounds: args.rounds,
        time: Duration::from_secs_f64(args.seconds),
    };
    println!("{} rounds of {} s", args.rounds, args.seconds);
    for (title, variants) in sections(&both) {
        if title.contains(&args.only) {
            for clients in &args.callers {
                compare(title, &variants, *clients, plan, &Servers::pids([pid])).await;
                // First runs leave records: the next section is not to pay for them.
                let _: () = redis::cmd("FLUSHDB")
                    .query_async(&mut raw)
                    .await
                    .expect("a clean server");
                prepare(&both).await;
            }
        }
    }
}

async fn connect(url: &str) -> Both {
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
    macro_rules! variants {
        ($($name:literal => $call:path),* $(,)?) => {
            vec![$({
                let both = both.clone();
                Variant::new($name, move |n| {
                    let both = both.clone();
                    async move { $call(&both, n).await.expect($name) }
                })
            }),*]
        };
    }
    vec![
        (
            "replay",
            variants! {
                "raw GET" => by_hand::get,
                "SET NX GET PX by hand" => by_hand::set_nx_get,
                "store" => steps::replay,
            },
        ),
        (
            "replay, decoded",
            variants! {
                "raw GET, decoded" => by_hand::get_decoded,
                "attribute" => attribute::replay,
            },
        ),
        (
            "first run",
            variants! {
                "SET NX PX, SET PX by hand (no owner check)" => by_hand::first_unchecked,
                "SET NX GET PX, owner-checking script by hand" => by_hand::first,
                "store" => steps::first,
                "attribute" => attribute::first,
            },
        ),
        (
            "50 % duplicates",
            variants! {
                "SET NX GET PX, owner-checking script by hand" => by_hand::mixed::<50>,
                "store" => steps::mixed::<50>,
            },
        ),
        (
            "95 % duplicates",
            variants! {
                "SET NX GET PX, owner-checking script by hand" => by_hand::mixed::<95>,
                "store" => steps::mixed::<95>,
            },
        ),
    ]
}

/// Whether the `n`th call of a mixed load repeats a recorded one, and which.
fn repeats<const PERCENT: u64>(n: u64) -> Option<u64> {
    let mixed = (n ^ (n >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    (mixed % 100 < PERCENT).then_some(mixed / 100 % RECORDED)
}

async fn prepare(both: &Both) {
    for n in 0..RECORDED {
        steps::recorded(&both.store, n).await.expect("a record");
        attribute::recorded(&both.store, n).await.expect("a record");
    }
}
