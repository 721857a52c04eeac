//! Every store, one after the other in one run: Redis against bare commands, the fronts against a
//! bare cache and a raw read, MySQL and MariaDB against the same protocol by hand.
//!
//! `scripts/test --servers-only -- cargo run --release -p idem-benches --bin bench-stores`
#![allow(clippy::print_stdout, clippy::expect_used)]

mod memory;
mod mysql;
mod redis;
mod tiered;

use std::alloc::System;
use std::time::Duration;

use clap::Parser;
use idem_benches::Plan;
use idem_benches::cpu::Servers;
use sqlx::postgres::PgPoolOptions;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[derive(Parser)]
struct Args {
    /// Postgres; all servers should be on this machine.
    #[arg(long, env = "IDEM_TEST_POSTGRES_URL")]
    postgres: String,
    /// Redis.
    #[arg(long, env = "IDEM_TEST_REDIS_URL")]
    redis: String,
    /// MariaDB or MySQL.
    #[arg(long, env = "IDEM_TEST_MARIADB_URL")]
    mysql: String,
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Seconds a variant and round.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Only sections whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Callers.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 32])]
    callers: Vec<usize>,
}

/// How the sections are measured.
struct Measured {
    plan: Plan,
    callers: Vec<usize>,
    only: String,
    servers: Servers,
}

impl Measured {
    fn wants(&self, title: &str) -> bool {
        title.contains(&self.only)
    }
}

fn main() {
    let args = Args::parse();
    println!("{} rounds of {} s", args.rounds, args.seconds);
    if memory::TITLE.contains(&args.only) {
        let one = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        one.expect("a runtime")
            .block_on(memory::compare(args.rounds));
    }
    let many = tokio::runtime::Runtime::new().expect("a runtime");
    many.block_on(servers(args));
}

async fn servers(args: Args) {
    let pool = PgPoolOptions::new()
        .max_connections(40)
        .connect(&args.postgres)
        .await
        .expect("Postgres");
    let processes = [
        redis::process(&args.redis).await,
        mysql::process(&args.mysql).await,
    ];
    let how = Measured {
        plan: Plan {
            rounds: args.rounds,
            time: Duration::from_secs_f64(args.seconds),
        },
        callers: args.callers,
        only: args.only,
        servers: Servers::postgres(pool.clone()).and_pids(processes),
    };
    redis::compare_all(&args.redis, &how).await;
    tiered::compare_all(&pool, &args.redis, &how).await;
    mysql::compare_all(&args.mysql, &how).await;
}
