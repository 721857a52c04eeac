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
//! | `wire.rs`, `notice.rs`, `money.rs`, `lines.rs` | what providers send, read with care |
//! | `run.rs`, `turns.rs` | many at a time |
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
mod patience;
mod postgres;
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
use std::time::Instant;

use clap::Parser as _;
use idem_examples::Scratch;

use crate::args::Args;
use crate::database::Database;
use crate::expected::Expected;
use crate::report::Report;

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
    let input: Box<dyn BufRead + Send> = match &args.file {
        Some(path) => {
            let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
            Box::new(BufReader::with_capacity(1 << 16, file))
        }
        None => Box::new(CALLBACKS),
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
    let good = book(input, &database, args.concurrency, expected.as_ref()).await;
    database.close().await;
    good
}

async fn book(
    input: Box<dyn BufRead + Send>,
    database: &Database,
    concurrency: u16,
    expected: Option<&Expected>,
) -> Result<bool, Box<dyn Error>> {
    let start = Instant::now();
    let tally = run::run(input, database, concurrency).await?;
    let took = start.elapsed();
    let books = database.books().await?;
    let report = Report::new(tally, took, concurrency, books, expected);
    write!(std::io::stdout().lock(), "{report}")?;
    Ok(report.is_good())
}

fn read_expected(path: &Path) -> Result<Expected, String> {
    let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))
}
