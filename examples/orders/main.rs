//! Payment callbacks from three providers, each sent many times, booked once.
//!
//! ```text
//! cargo run --example orders
//! cargo run --example orders -- FILE --expect FILE --database postgres://… --concurrency 64
//! ```
//!
//! | file | what it shows |
//! |---|---|
//! | `service.rs` | the annotated functions: this is the part to read |
//! | `delivery.rs` | a caller that owns the transaction: commit, roll back, run again |
//! | `wire.rs`, `object.rs`, `notice.rs`, `money.rs`, `lines.rs` | what providers send, read with care |
//! | `run.rs`, `turns.rs`, `progress.rs` | many at a time |
//! | `books.rs`, `audit.rs`, `expected.rs`, `report.rs` | whether it came out right |
//!
//! The exit status is 0 when all is well, 1 when the books or the expectation disagree or a line
//! failed, 2 when the run could not be made or was cut short.

#![allow(
    clippy::duplicate_mod,
    reason = "the service is compiled once for SQLite and once for Postgres"
)]

mod args;
mod audit;
mod database;
mod error;
mod expected;
mod lines;
mod money;
mod notice;
mod object;
mod patience;
mod postgres;
mod progress;
mod report;
mod run;
mod schema;
mod sqlite;
mod turns;
mod wire;

use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser as _;
use idem_examples::Scratch;

use crate::args::Args;
use crate::database::Database;
use crate::expected::Expected;
use crate::progress::Progress;
use crate::report::Report;
use crate::run::Tally;

const CALLBACKS: &[u8] = include_bytes!("callbacks.jsonl");
const EXPECTED: &[u8] = include_bytes!("callbacks.expected.json");

#[tokio::main]
async fn main() -> ExitCode {
    match process(&Args::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("orders: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether everything came out right.
async fn process(args: &Args) -> Result<bool, Box<dyn Error>> {
    let expected = match (&args.expect, &args.file) {
        (Some(path), _) => Some(read_expected(path)?),
        (None, None) => Some(serde_json::from_slice(EXPECTED)?),
        (None, Some(_)) => None,
    };
    let (input, progress): (Box<dyn BufRead + Send>, _) = match &args.file {
        Some(path) => {
            let of = |error| format!("{}: {error}", path.display());
            let file = File::open(path).map_err(of)?;
            let progress = Progress::of(file.metadata().map_err(of)?.len());
            let file = BufReader::with_capacity(1 << 16, progress.over(file));
            (Box::new(file), progress)
        }
        None => (Box::new(CALLBACKS), Progress::none()),
    };
    let (url, _scratch) = match &args.database {
        Some(url) => (url.clone(), None),
        None => {
            let scratch = Scratch::new()?;
            (scratch.url(), Some(scratch))
        }
    };
    let database = Database::open(&url, args.concurrency)
        .await
        .map_err(|error| format!("the database cannot be used: {error}"))?;
    let start = Instant::now();
    let tally = run::run(input, &database, args.concurrency, &progress).await;
    progress.end();
    let good = match tally {
        Ok(tally) => {
            let took = start.elapsed();
            judge(tally, took, &database, args.concurrency, expected.as_ref()).await
        }
        Err(stopped) => Err(stopped.into()),
    };
    database.close().await;
    good
}

async fn judge(
    tally: Tally,
    took: Duration,
    database: &Database,
    concurrency: u16,
    expected: Option<&Expected>,
) -> Result<bool, Box<dyn Error>> {
    let books = database.books().await?;
    let report = Report::new(tally, took, concurrency, books, expected);
    write!(std::io::stdout().lock(), "{report}")?;
    Ok(report.is_good())
}

fn read_expected(path: &Path) -> Result<Expected, String> {
    let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))
}
