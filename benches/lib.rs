//! Shared pieces of the measurements: variants take turns within a round, another one first each
//! round; what is printed are medians over rounds and the median of the rounds' own ratios.
// A measurement prints its table and stops at the first thing that goes wrong.
#![allow(clippy::print_stdout, clippy::expect_used, missing_docs)]

pub mod cpu;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One way of doing the work. `call(n)` does it once; `n` never repeats within the process.
#[derive(Clone)]
pub struct Variant {
    name: &'static str,
    call: Arc<dyn Fn(u64) -> Call + Send + Sync>,
}

impl Variant {
    pub fn new<F, Fut>(name: &'static str, call: F) -> Self
    where
        F: Fn(u64) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self {
            name,
            call: Arc::new(move |n| Box::pin(call(n))),
        }
    }

    /// Does it once.
    pub async fn call(&self, n: u64) {
        (self.call)(n).await;
    }
}

/// Variants by name, each an `async fn(&on, n)`.
#[macro_export]
macro_rules! variants {
    ($on:expr; $($name:literal => $call:expr),* $(,)?) => {
        vec![$({
            let on = $on.clone();
            $crate::Variant::new($name, move |n| {
                let on = on.clone();
                async move { $call(&on, n).await.expect($name) }
            })
        }),*]
    };
}

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub rounds: usize,
    pub time: Duration,
}

/// What one round of one variant gave.
#[derive(Clone, Copy, Debug)]
struct Sample {
    per_second: f64,
    client_cpu: f64,
    server_cpu: f64,
}

/// Runs all variants at `clients` concurrent callers and prints a table; the first is the base.
pub async fn compare(
    title: &str,
    variants: &[Variant],
    clients: usize,
    plan: Plan,
    servers: &cpu::Servers,
) {
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); variants.len()];
    for round in 0..=plan.rounds {
        for turn in 0..variants.len() {
            let at = (turn + round) % variants.len();
            let time = if round == 0 { plan.time / 4 } else { plan.time };
            let sample = run(&variants[at], clients, time, servers).await;
            // The first round warms connections, caches and the table up.
            if round > 0 {
                samples[at].push(sample);
            }
        }
    }
    print(title, variants, clients, &samples);
}

async fn run(variant: &Variant, clients: usize, time: Duration, servers: &cpu::Servers) -> Sample {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let this = RUNS.fetch_add(1, Ordering::Relaxed) << 8;
    let stop = Arc::new(AtomicBool::new(false));
    let (client_before, server_before) = (cpu::own(), servers.total().await);
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for client in 0..clients as u64 {
        let (stop, call) = (Arc::clone(&stop), Arc::clone(&variant.call));
        let base = this | client;
        tasks.push(tokio::spawn(async move {
            let mut done = 0u64;
            while !stop.load(Ordering::Relaxed) {
                call(base + (done << 32)).await;
                // A call that never has to wait must let the others, and the clock, have their turn.
                tokio::task::consume_budget().await;
                done += 1;
            }
            done
        }));
    }
    tokio::time::sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    let mut done = 0;
    for task in tasks {
        done += task.await.expect("a call panicked");
    }
    let took = begun.elapsed().as_secs_f64();
    let (client_cpu, server_cpu) = (
        cpu::own() - client_before,
        servers.total().await - server_before,
    );
    let calls = done.max(1) as f64;
    Sample {
        per_second: done as f64 / took,
        client_cpu: client_cpu * 1e6 / calls,
        server_cpu: server_cpu * 1e6 / calls,
    }
}

fn print(title: &str, variants: &[Variant], clients: usize, samples: &[Vec<Sample>]) {
    println!("\n### {title}, {clients} callers\n");
    println!("| variant | calls/s | ratio | client CPU µs | server CPU µs | CPU ratio |");
    println!("|---|---|---|---|---|---|");
    let cpu = |s: &Sample| s.client_cpu + s.server_cpu;
    for (variant, own) in variants.iter().zip(samples) {
        let ratios = own.iter().zip(&samples[0]);
        println!(
            "| {} | {:.0} | {:.2} | {:.0} | {:.0} | {:.2} |",
            variant.name,
            median(own.iter().map(|s| s.per_second)),
            median(
                ratios
                    .clone()
                    .map(|(s, base)| s.per_second / base.per_second)
            ),
            median(own.iter().map(|s| s.client_cpu)),
            median(own.iter().map(|s| s.server_cpu)),
            median(ratios.map(|(s, base)| cpu(s) / cpu(base).max(0.001))),
        );
    }
}

pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// Whether the `n`th call of a mixed load repeats one of `recorded` calls, and which.
pub fn repeats<const PERCENT: u64>(n: u64, recorded: u64) -> Option<u64> {
    let mixed = (n ^ (n >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    (mixed % 100 < PERCENT).then_some(mixed / 100 % recorded)
}
