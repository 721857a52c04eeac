//! The attribute against the same protocol written by hand with sqlx and against the bare business
//! transaction, on Postgres.
//!
//! `scripts/test --servers-only -- cargo run --release -p idem-benches --bin bench-postgres`
#![allow(clippy::print_stdout, clippy::expect_used)]

#[path = "../sql/mod.rs"]
mod sql;
mod statements;

use std::time::Duration;

use clap::Parser;
use idem_benches::cpu::Servers;
use idem_benches::{Plan, compare};
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

type Pool = PgPool;
type Tx<'c> = sqlx::PgTransaction<'c>;

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
    sql::prepare(&pool).await;
    let plan = Plan {
        rounds: args.rounds,
        time: Duration::from_secs_f64(args.seconds),
    };
    let servers = Servers::postgres(pool.clone());
    println!(
        "synchronous_commit = {sync}, {} rounds of {} s",
        args.rounds, args.seconds
    );
    for (title, variants) in sql::sections(&pool) {
        if title.contains(&args.only) {
            for clients in &args.callers {
                compare(title, &variants, *clients, plan, &servers).await;
            }
        }
    }
}
