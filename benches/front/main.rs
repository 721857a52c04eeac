//! The front: a replay from memory against a bare get of the same cache, with what it allocates; and
//! a tiered replay against a plain SELECT on the pool.
//!
//! `scripts/test --servers-only -- cargo run --release -p idem-benches --bin bench-front`
#![allow(clippy::print_stdout, clippy::expect_used)]

mod memory;
mod tiered;

use std::alloc::System;
use std::time::Duration;

use clap::Parser;
use idem_benches::Plan;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[derive(Parser)]
struct Args {
    /// Postgres; the server should be on this machine.
    #[arg(long, env = "IDEM_TEST_POSTGRES_URL")]
    database: String,
    /// Redis likewise; without it there is no front in Redis.
    #[arg(long, env = "IDEM_TEST_REDIS_URL")]
    redis: Option<String>,
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Seconds a variant and round.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Callers.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 32])]
    callers: Vec<usize>,
}

/// How many records there are.
const RECORDED: u64 = 1000;

fn main() {
    let args = Args::parse();
    let one = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    one.expect("a runtime")
        .block_on(memory::compare(args.rounds));
    let plan = Plan {
        rounds: args.rounds,
        time: Duration::from_secs_f64(args.seconds),
    };
    let many = tokio::runtime::Runtime::new().expect("a runtime");
    many.block_on(tiered::compare_all(
        &args.database,
        args.redis.as_deref(),
        &args.callers,
        plan,
    ));
}
