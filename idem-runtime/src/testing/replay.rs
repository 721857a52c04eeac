//! Asserts that a function is idempotent: many equal calls at once, one run, equal answers.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::Barrier;

use crate::observe::{Answered, observe};

/// What many equal calls gave.
#[derive(Debug)]
#[must_use = "nothing is asserted yet"]
pub struct Report<T, E> {
    calls: Vec<One<T, E>>,
}

#[derive(Debug)]
struct One<T, E> {
    answer: Result<T, E>,
    answered: Option<Answered>,
}

/// Calls `call` `times` times at once, each in a task of its own, and asserts that its body ran once
/// and that all answers are that run's `Ok`.
///
/// It counts by what the framework saw ([`observe`]); count the effects
/// themselves beside it, in the database or wherever they go.
///
/// # Panics
/// They were not one; the message says what they were.
pub async fn assert_once<T, E, F, Fut>(times: usize, call: F) -> Report<T, E>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>> + Send + 'static,
    T: PartialEq + fmt::Debug + Send + 'static,
    E: fmt::Debug + Send + 'static,
{
    let report = run(times, call).await;
    report.assert_once();
    report
}

/// Calls `call` `times` times at once and asserts nothing.
///
/// # Panics
/// A call panicked.
pub async fn run<T, E, F, Fut>(times: usize, mut call: F) -> Report<T, E>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    let together = Arc::new(Barrier::new(times));
    let tasks: Vec<_> = (0..times)
        .map(|_| {
            let (together, call) = (Arc::clone(&together), call());
            tokio::spawn(async move {
                together.wait().await;
                observe(call).await
            })
        })
        .collect();
    let mut calls = Vec::with_capacity(times);
    for task in tasks {
        match task.await {
            Ok((answer, seen)) => calls.push(One {
                answer,
                answered: seen.answered(),
            }),
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Err(ended) => panic!("a call did not end: {ended}"),
        }
    }
    Report { calls }
}

impl<T, E> Report<T, E> {
    /// How often the body ran.
    #[must_use]
    pub fn first_runs(&self) -> usize {
        self.count(|answered| matches!(answered, Some(Answered::FirstRun)))
    }

    /// How many calls were answered from the record.
    #[must_use]
    pub fn replays(&self) -> usize {
        self.count(|answered| matches!(answered, Some(Answered::Replay { .. })))
    }

    /// How many calls the framework refused, say as in progress.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.count(|answered| matches!(answered, Some(Answered::Refused)))
    }

    /// The answers, in the order of the calls.
    pub fn answers(&self) -> impl Iterator<Item = &Result<T, E>> {
        self.calls.iter().map(|one| &one.answer)
    }

    fn count(&self, which: impl Fn(Option<Answered>) -> bool) -> usize {
        self.calls.iter().filter(|one| which(one.answered)).count()
    }
}

impl<T: PartialEq + fmt::Debug, E: fmt::Debug> Report<T, E> {
    /// One run, and every answer is its `Ok`.
    ///
    /// # Panics
    /// It is not so.
    #[track_caller]
    pub fn assert_once(&self) {
        let unseen = self.count(|answered| answered.is_none());
        assert!(
            unseen == 0,
            "{unseen} of the calls never got to an idempotent function"
        );
        self.assert_runs(1);
        let mut values = self.calls.iter().map(|one| match &one.answer {
            Ok(value) => value,
            Err(error) => panic!("a call was answered with an error: {error:?}\n{self}"),
        });
        let first = values.next();
        for other in values {
            assert!(
                Some(other) == first,
                "two callers got different answers: {first:?} and {other:?}\n{self}"
            );
        }
    }

    /// The body ran this often, whatever the answers; for functions that refuse duplicates while
    /// the first call runs.
    ///
    /// # Panics
    /// It is not so.
    #[track_caller]
    pub fn assert_runs(&self, times: usize) {
        assert!(
            self.first_runs() == times,
            "the body was to run {times} times and ran {} times\n{self}",
            self.first_runs()
        );
    }
}

impl<T, E> fmt::Display for Report<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} calls: {} first runs, {} replays, {} refused",
            self.calls.len(),
            self.first_runs(),
            self.replays(),
            self.refused()
        )
    }
}
