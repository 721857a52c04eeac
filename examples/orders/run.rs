//! Takes a file of callbacks to the service, several at a time.

use std::io::BufRead;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinError, JoinSet};

use crate::database::{Database, Delivered};
use crate::error::OrderError;
use crate::lines::next_line;
use crate::notice::{BadLine, Notice, parse};
use crate::progress::Progress;
use crate::turns::{Turn, Turns};

/// Lines that are read ahead.
const READ_AHEAD: usize = 64;

/// What became of the lines of one run. What became of the *money* is in the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) lines: u64,
    pub(crate) bad_lines: u64,
    pub(crate) booked: u64,
    pub(crate) replayed: u64,
    /// Refused for naming a known trade with other contents.
    pub(crate) mismatches: u64,
    /// Refused for anything else.
    pub(crate) failed: u64,
}

/// Why a run stopped before the end of the file. What is booked stays; run it again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stopped {
    #[error("the file cannot be read on after line {after}: {error}")]
    Reading { after: u64, error: std::io::Error },
    #[error("line {line} cannot be processed now: {error}")]
    Database { line: u64, error: OrderError },
    #[error("a task of this program failed: {0}")]
    Task(#[from] JoinError),
}

type Answer = (u64, Result<Delivered, OrderError>);

/// Processes every line of `input`, at most `concurrency` at a time. Lines that are no notice, and
/// notices that are refused, are reported with their number and passed over.
pub(crate) async fn run(
    input: impl BufRead + Send + 'static,
    database: &Database,
    concurrency: u16,
    progress: &Progress,
) -> Result<Tally, Stopped> {
    let (lines, mut notices) = mpsc::channel(READ_AHEAD);
    let reader = tokio::task::spawn_blocking(move || read(input, &lines));
    let slots = Arc::new(Semaphore::new(concurrency.into()));
    let mut turns = Turns::default();
    let mut running = JoinSet::new();
    let mut tally = Tally::default();
    while let Some((number, notice)) = notices.recv().await {
        tally.lines += 1;
        match notice {
            Ok(notice) => {
                // The slot is taken in the order of the file, so the notice that a round waits for
                // always has one.
                let slot = Arc::clone(&slots).acquire_owned().await;
                let turn = turns.next(&notice);
                let database = database.clone();
                running.spawn(async move {
                    let _slot = slot;
                    take(number, notice, turn, &database).await
                });
            }
            Err(bad) => {
                tally.bad_lines += 1;
                complain(progress, number, &bad);
            }
        }
        while let Some(answer) = running.try_join_next() {
            tally.count(answer?, progress)?;
        }
    }
    while let Some(answer) = running.join_next().await {
        tally.count(answer?, progress)?;
    }
    reader.await?.map(|()| tally)
}

async fn take(number: u64, notice: Notice, mut turn: Turn, database: &Database) -> Answer {
    turn.comes().await;
    (number, database.deliver(&notice).await)
}

/// Reads and parses on a thread of its own, until the file or the interest ends.
fn read(
    mut input: impl BufRead,
    lines: &mpsc::Sender<(u64, Result<Notice, BadLine>)>,
) -> Result<(), Stopped> {
    let mut number = 0;
    loop {
        let line = match next_line(&mut input) {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(()),
            Err(error) => {
                return Err(Stopped::Reading {
                    after: number,
                    error,
                });
            }
        };
        number += 1;
        let line = match number {
            1 => line.without_mark(),
            _ => line,
        };
        if lines.blocking_send((number, parse(&line))).is_err() {
            return Ok(());
        }
    }
}

impl Tally {
    /// Counts an answer and reports a refusal. A database that is not there for this notice will
    /// not be for the next one either: the run stops.
    fn count(&mut self, (line, answer): Answer, progress: &Progress) -> Result<(), Stopped> {
        match answer {
            Ok(Delivered::Booked) => self.booked += 1,
            Ok(Delivered::Replayed) => self.replayed += 1,
            Err(error) if error.is_mismatch() => {
                self.mismatches += 1;
                complain(progress, line, &error);
            }
            Err(error) if error.retry() == idem::Retry::Never => {
                self.failed += 1;
                complain(progress, line, &error);
            }
            Err(error) => return Err(Stopped::Database { line, error }),
        }
        Ok(())
    }
}

/// On the error stream. What came from outside is shown without control characters and not at
/// any length.
fn complain(progress: &Progress, line: u64, why: &dyn std::fmt::Display) {
    const LONGEST: usize = 300;
    let why = why.to_string();
    let mut shown: String = why
        .chars()
        .take(LONGEST)
        .flat_map(|c| {
            if c.is_control() {
                c.escape_default().collect()
            } else {
                vec![c]
            }
        })
        .collect();
    if why.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    progress.say(&format!("line {line}: {shown}"));
}
