//! One attempt: of a step, or of what undoes it.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use sqlx::{Pool, SqlStr, Transaction};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::claim::repeating;
use super::context::StepTx;
use super::definition::{Body, Boxed};
use super::error::{StepError, StepErrorKind};
use super::lease::InDoubt;
use super::plan::Effect;
use super::record::{Note, Undone, write_and_commit};
use super::runner::{Broken, Runner};
use super::sql::SagaDialect;
use super::state::{StepRow, StepState};
use crate::engine::run_to_end;
use crate::outcome::Outcome;

/// How long the answer to a rollback is waited for; then it comes to its end in the background.
const ROLLING_BACK: Duration = Duration::from_secs(5);

/// Why an attempt in a transaction left nothing.
enum Failed {
    Step(StepError),
    Broken(Broken),
}

impl<D, I, C> Runner<D, I, C>
where
    D: SagaDialect,
    I: Outcome + Send + Sync + 'static,
    C: Clone + Send + Sync + 'static,
{
    pub(super) async fn forward_tx(&mut self, at: usize) -> Result<(), Broken> {
        let definition = Arc::clone(&self.definition);
        let Body::Tx { run, .. } = self.body_of(&definition, at) else {
            return Ok(());
        };
        let mut row = self.rows[at].clone();
        row.attempts = row.attempts.saturating_add(1);
        let done = |row: &mut StepRow, result| {
            row.state = StepState::Done;
            row.result = Some(result);
            row.error = None;
        };
        match self.in_transactions(at, &row, false, run, done).await {
            Ok(()) => Ok(()),
            Err(Failed::Step(error)) => self.failed(row, false, error).await,
            Err(Failed::Broken(broken)) => Err(broken),
        }
    }

    pub(super) async fn backward_tx(&mut self, at: usize) -> Result<(), Broken> {
        let definition = Arc::clone(&self.definition);
        let Body::Tx {
            undo: Some(undo), ..
        } = self.body_of(&definition, at)
        else {
            return Ok(());
        };
        let mut row = self.rows[at].clone();
        row.undo_attempts = row.undo_attempts.saturating_add(1);
        let result = row.result.clone().unwrap_or_default();
        let done = |row: &mut StepRow, ()| {
            row.state = StepState::Compensated;
            row.error = None;
        };
        let undo = |step| undo(step, &result);
        match self.in_transactions(at, &row, true, undo, done).await {
            Ok(()) => Ok(()),
            Err(Failed::Step(error)) => self.failed(row, true, error).await,
            Err(Failed::Broken(broken)) => Err(broken),
        }
    }

    /// One attempt: what the database gave up for a deadlock or a serialization failure is run again at
    /// once, and is no attempt of its own, since nothing remains of it.
    async fn in_transactions<T: Send + 'static>(
        &mut self,
        at: usize,
        row: &StepRow,
        undo: bool,
        body: impl Fn(StepTx<D, I, C>) -> Boxed<Result<T, StepError>>,
        done: impl Fn(&mut StepRow, T),
    ) -> Result<(), Failed> {
        let mut pauses = repeating();
        loop {
            let failed = match self.in_transaction(at, row, undo, &body, &done).await {
                Err(Failed::Step(error)) if error.gave_the_transaction_up() => error,
                other => return other,
            };
            let Some(pause) = pauses.next() else {
                return Err(Failed::Step(failed));
            };
            let sleep = tokio::time::sleep(pause);
            let slept = self.lease.beside(self.since, InDoubt::Stop, sleep).await;
            slept.map_err(|lost| Failed::Broken(lost.into()))?;
        }
    }

    /// Runs `body` in a transaction that commits its effects together with the row that `done` makes,
    /// or neither.
    async fn in_transaction<T: Send + 'static>(
        &mut self,
        at: usize,
        row: &StepRow,
        undo: bool,
        body: &impl Fn(StepTx<D, I, C>) -> Boxed<Result<T, StepError>>,
        done: &impl Fn(&mut StepRow, T),
    ) -> Result<(), Failed> {
        let timeout = self.timeout(at);
        let tx = begin(&self.definition.pool).await;
        let tx = tx.map_err(|error| Failed::Step(error.into()))?;
        let lent = Arc::new(Mutex::new(tx));
        let step = StepTx {
            tx: Arc::clone(&lent).lock_owned().await,
            step: self.step(row, undo),
        };
        let left_alone = Arc::clone(&step.step.left_alone);
        // The function itself may panic, before there is a future.
        let body: Boxed<_> = match catch_unwind(AssertUnwindSafe(|| body(step))) {
            Ok(body) if D::DROPPABLE => Box::pin(within(timeout, caught(body))),
            // It comes to its end in the background, or is dropped there in the end.
            Ok(body) => {
                let body = within(timeout.saturating_mul(2), caught(body));
                Box::pin(within(timeout, run_to_end(body)))
            }
            Err(payload) => return Err(Failed::Step(StepError::panicked(&*payload))),
        };
        let ran = self.lease.beside(self.since, InDoubt::GoOn, body).await;
        let Ok(tx) = Arc::try_unwrap(lent) else {
            // It goes on by itself, and is rolled back when it comes to its end.
            return Err(match ran {
                Err(_) => Failed::Broken(Broken::Lost),
                Ok(Err(error)) => Failed::Step(error),
                Ok(Ok(_)) => {
                    let kept = "the step kept its transaction beyond its end";
                    Failed::Step(StepError::retry(kept))
                }
            });
        };
        let tx = tx.into_inner();
        let value = match ran {
            Ok(Ok(value)) => value,
            other => {
                // Awaited, so that its locks are gone; a connection that cannot roll back is closed.
                let rollback = run_to_end(async move { drop(tx.rollback().await) });
                let _ = tokio::time::timeout(ROLLING_BACK, rollback).await;
                return Err(match other {
                    Ok(Err(error)) => Failed::Step(error),
                    _ => Failed::Broken(Broken::Lost),
                });
            }
        };
        let mut row = row.clone();
        row.left_alone |= left_alone.load(Ordering::SeqCst);
        done(&mut row, value);
        self.commit(tx, row).await
    }

    async fn commit(&mut self, tx: Transaction<'static, D>, row: StepRow) -> Result<(), Failed> {
        let sent = Instant::now();
        let mut note = Note {
            row: Some(row),
            saga: None,
        };
        let (definition, held) = (Arc::clone(&self.definition), self.lease.held);
        let writing = note.clone();
        let committed = run_to_end(async move {
            let mut tx = tx;
            if let Some(unmark) = D::UNMARK
                && let Err(error) = execute(&mut tx, unmark).await
            {
                let _ = tx.rollback().await;
                return Err(Undone::RolledBack(error));
            }
            let texts = definition.table.texts::<D>();
            let (hold, lease) = (&texts.hold, definition.settings.lease);
            write_and_commit(tx, texts, hold, held, lease, &writing).await
        });
        match committed.await {
            Ok(()) => {
                self.since = sent;
                self.written(note);
                Ok(())
            }
            Err(Undone::Lost) => match self.lease.renew().await {
                // Held still: it was the transaction that was not there any more.
                Ok(true) => Err(Failed::Step(StepError::retry(
                    "the transaction ended inside the step",
                ))),
                _ => Err(Failed::Broken(Broken::Lost)),
            },
            Err(Undone::RolledBack(error)) => Err(Failed::Step(error.into())),
            Err(Undone::InDoubt(error)) => match self.resolve(&mut note, &error).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(Failed::Step(error.into())),
                Err(broken) => Err(Failed::Broken(broken)),
            },
        }
    }

    pub(super) async fn forward_outside(&mut self, at: usize) -> Result<(), Broken> {
        let definition = Arc::clone(&self.definition);
        let Body::Outside { run, ask, .. } = self.body_of(&definition, at) else {
            return Ok(());
        };
        let mut row = self.rows[at].clone();
        // Recorded as started and not as ended: an attempt before this one may have had its effect.
        row.unknown |= row.state == StepState::Started;
        row.state = StepState::Started;
        row.attempts = row.attempts.saturating_add(1);
        row.error = None;
        self.record(Note {
            row: Some(row.clone()),
            saga: None,
        })
        .await?;
        row.recorded = true;
        let running = self.step(&row, false);
        let left_alone = Arc::clone(&running.left_alone);
        let attempt = caught(async {
            if let Some(ask) = ask.as_ref().filter(|_| row.unknown) {
                // A question that is refused says nothing about the effect.
                let asking = self.step(&row, false);
                let was_there = Arc::clone(&asking.left_alone);
                let asked = ask(asking).await.map_err(StepError::undecided)?;
                if let Some(result) = asked {
                    left_alone.fetch_or(was_there.load(Ordering::SeqCst), Ordering::SeqCst);
                    return Ok(result);
                }
            }
            run(running).await
        });
        let attempt = within(self.timeout(at), attempt);
        let attempt = self
            .lease
            .beside(self.since, InDoubt::Stop, attempt)
            .await?;
        match attempt {
            Ok(result) => {
                row.state = StepState::Done;
                row.result = Some(result);
                row.left_alone = left_alone.load(Ordering::SeqCst);
                self.record(Note {
                    row: Some(row),
                    saga: None,
                })
                .await
            }
            Err(error) => {
                row.unknown |= error.kind != StepErrorKind::Refused;
                self.failed(row, false, error).await
            }
        }
    }

    pub(super) async fn backward_outside(
        &mut self,
        at: usize,
        effect: Effect,
    ) -> Result<(), Broken> {
        let definition = Arc::clone(&self.definition);
        let Body::Outside {
            ask,
            undo: Some(undo),
            ..
        } = self.body_of(&definition, at)
        else {
            return Ok(());
        };
        let mut row = self.rows[at].clone();
        row.state = StepState::Compensating;
        row.undo_attempts = row.undo_attempts.saturating_add(1);
        self.record(Note {
            row: Some(row.clone()),
            saga: None,
        })
        .await?;
        row.recorded = true;
        let known = row.result.clone();
        let asking = self.step(&row, false);
        let was_there = Arc::clone(&asking.left_alone);
        let attempt = caught(async {
            let result = match (ask, effect) {
                (Some(ask), Effect::Unknown) => ask(asking).await.map_err(StepError::undecided)?,
                _ => known,
            };
            let theirs = result.is_some() && was_there.load(Ordering::SeqCst);
            if !theirs {
                undo(self.step(&row, true), result.as_ref()).await?;
            }
            Ok((result, theirs))
        });
        let attempt = within(self.timeout(at), attempt);
        let attempt = self
            .lease
            .beside(self.since, InDoubt::Stop, attempt)
            .await?;
        match attempt {
            Ok((result, theirs)) => {
                row.state = if theirs {
                    StepState::Done
                } else {
                    StepState::Compensated
                };
                row.left_alone = theirs;
                row.result = result;
                row.error = None;
                self.record(Note {
                    row: Some(row),
                    saga: None,
                })
                .await
            }
            Err(error) => self.failed(row, true, error).await,
        }
    }
}

async fn begin<D: SagaDialect>(pool: &Pool<D>) -> Result<Transaction<'static, D>, sqlx::Error> {
    let pool = pool.clone();
    run_to_end(async move {
        let mut tx = D::begin(&pool).await?;
        if let Some(mark) = D::MARK {
            execute(&mut tx, mark).await?;
        }
        Ok(tx)
    })
    .await
}

async fn execute<D: SagaDialect>(
    tx: &mut Transaction<'static, D>,
    sql: &'static str,
) -> Result<(), sqlx::Error> {
    D::execute(tx, &SqlStr::from_static(sql), D::Arguments::default())
        .await
        .map(drop)
}

/// The attempt; one that takes longer is dropped, and has failed.
async fn within<T>(
    timeout: Duration,
    attempt: impl Future<Output = Result<T, StepError>>,
) -> Result<T, StepError> {
    let ended = tokio::time::timeout(timeout, attempt).await;
    ended.unwrap_or_else(|_| Err(StepError::timed_out(timeout)))
}

/// The attempt; a panic is an attempt that failed.
async fn caught<T>(attempt: impl Future<Output = Result<T, StepError>>) -> Result<T, StepError> {
    let mut attempt = pin!(attempt);
    std::future::poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| attempt.as_mut().poll(cx)));
        polled.unwrap_or_else(|payload| Poll::Ready(Err(StepError::panicked(&*payload))))
    })
    .await
}
