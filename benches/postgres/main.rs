//! The attribute against the same protocol written by hand with sqlx and against the bare business
//! transaction, on Postgres.
//!
//! `scripts/test --servers-only -- cargo run --release -p idem-benches --bin bench-postgres`
#![allow(clippy::print_stdout, clippy::expect_used)]

mod attribute;
mod by_hand;

use std::time::Duration;

use clap::Parser;
use idem_benches::cpu::Servers;
use idem_benches::{Plan, Variant, compare};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

#[derive(Parser)]
struct Args {
    /// Postgres; the server should be on this machine.
    #[arg(long, env = "IDEM_TEST_POSTGRES_URL")]
    database: String,
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Seconds a variant and round.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Wait for the disk at each commit; off takes its noise out of the comparison.
    #[arg(long)]
    sync: bool,
    /// Only sections whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Callers.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 32])]
    callers: Vec<usize>,
}

/// Where calls with a number below this are repeats of recorded ones.
const RECORDED: u64 = 1000;

#[tokio::main]
async fn main() {
    let args = Args::parse();
    let options: PgConnectOptions = args.database.parse().expect("a Postgres URL");
    let sync = if args.sync { "on" } else { "off" };
    let options = options.options([("synchronous_commit", sync)]);
    // Every client has a connection: what is compared is the work, not the wait for the pool.
    let pool = PgPoolOptions::new()
        .max_connections(40)
        .connect_with(options)
        .await
        .expect("a server");
    prepare(&pool).await;
    let plan = Plan {
        rounds: args.rounds,
        time: Duration::from_secs_f64(args.seconds),
    };
    let servers = Servers::postgres(pool.clone());
    println!(
        "synchronous_commit = {sync}, {} rounds of {} s",
        args.rounds, args.seconds
    );
    for (title, variants) in sections(&pool) {
        if title.contains(&args.only) {
            for clients in &args.callers {
                compare(title, &variants, *clients, plan, &servers).await;
            }
        }
    }
}

fn sections(pool: &PgPool) -> Vec<(&'static str, Vec<Variant>)> {
    macro_rules! variants {
        ($($name:literal => $call:expr),* $(,)?) => {
            vec![$({
                let pool = pool.clone();
                Variant::new($name, move |n| {
                    let pool = pool.clone();
                    async move { $call(&pool, n).await.expect($name) }
                })
            }),*]
        };
    }
    vec![
        (
            "first run, caller's transaction",
            variants! {
                "by hand" => by_hand::first,
                "attribute" => attribute::first,
                "bare business transaction" => by_hand::bare,
            },
        ),
        (
            "replay, caller's transaction",
            variants! {
                "by hand" => by_hand::replay,
                "attribute" => attribute::replay,
            },
        ),
        (
            "first run, framework's transaction",
            variants! {
                "by hand" => by_hand::first,
                "attribute, tx = name" => attribute::owned_first,
            },
        ),
        (
            "replay, framework's transaction",
            variants! {
                "raw SELECT on the pool" => by_hand::select,
                "attribute, tx = name" => attribute::owned_replay,
            },
        ),
        (
            "50 % duplicates, framework's transaction",
            variants! {
                "raw SELECT, else by hand" => by_hand::mixed::<50>,
                "attribute, tx = name" => attribute::mixed::<50>,
            },
        ),
        (
            "95 % duplicates, framework's transaction",
            variants! {
                "raw SELECT, else by hand" => by_hand::mixed::<95>,
                "attribute, tx = name" => attribute::mixed::<95>,
            },
        ),
    ]
}

async fn prepare(pool: &PgPool) {
    let drop = "DROP TABLE IF EXISTS bench_order, bench_account, idem_record, idem_record_never, idem_record_schema";
    sqlx::query(drop).execute(pool).await.expect("clean tables");
    for table in [
        "CREATE TABLE bench_order (id bigint PRIMARY KEY, merchant text NOT NULL, cents bigint NOT NULL)",
        "CREATE TABLE bench_account (id int PRIMARY KEY, balance bigint NOT NULL)",
        "INSERT INTO bench_account SELECT n, 0 FROM generate_series(0, 9999) n",
    ] {
        sqlx::query(table).execute(pool).await.expect("tables");
    }
    idem::store::postgres::migrate(pool)
        .await
        .expect("the record table");
    for n in 0..RECORDED {
        attribute::recorded(pool, n).await.expect("a record");
    }
}
