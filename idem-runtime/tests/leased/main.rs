//! The leased engine, driven as generated code drives it. Time is tokio's and paused unless a test
//! says otherwise.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod ended;
mod ends;
mod holds;
mod lease;
mod room;
mod settle;
mod together;
mod wait;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idem_runtime::__private::{
    Call, Entered, FingerprintBuilder, KeyBuilder, Operation, Run as _, Scope, contract, enter,
    key_part, leave, share,
};
use idem_runtime::store::Store;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::testing::clock::TokioClock;
use idem_runtime::testing::fault::Faulty;
use idem_runtime::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

/// A service's error type.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Failure {
    Declined,
    #[serde(skip)]
    Idem(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

impl Failure {
    fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Declined => None,
            Self::Idem(error) => Some(error.kind()),
        }
    }
}

/// What a call refused by the framework was refused with.
fn refused<T: std::fmt::Debug>(answer: &Result<T, Failure>) -> ErrorKind {
    match answer {
        Err(Failure::Idem(error)) => error.kind(),
        other => panic!("not refused: {other:?}"),
    }
}

fn error<T: std::fmt::Debug>(answer: Result<T, Failure>) -> Error {
    match answer {
        Err(Failure::Idem(error)) => error,
        other => panic!("not refused: {other:?}"),
    }
}

const LEASE: Duration = Duration::from_millis(300);
const DAY: u64 = 86_400_000;

/// An operation with a lease of 300 ms.
const fn operation(name: &'static str) -> Operation {
    Operation::new(Scope::fixed(name))
        .retention_millis(DAY)
        .lease_millis(300)
}

static WAITING: Operation = operation("waiting").wait_millis(2_000);
static REJECTING: Operation = operation("waiting").reject();
static RELEASING: Operation = operation("waiting").reject().on_cancel_release();
static HOLDING: Operation = operation("waiting").wait_millis(2_000).on_crash_hold();
static CONTINUING: Operation = operation("waiting").reject().on_lost_lease_continue();

fn prepare(operation: &'static Operation, key: &str) -> Result<Call, Error> {
    fn here() {}
    let mut builder = KeyBuilder::new(":");
    builder.literal("order:");
    key_part(&mut builder, key);
    Call::prepare(operation, &here, &[], builder, FingerprintBuilder::none())
}

/// What the attribute expands to for `fn(store, key) -> Result<u64, Failure>`.
async fn call<S: Store, B: Future<Output = Result<u64, Failure>>>(
    store: &S,
    operation: &'static Operation,
    key: &str,
    body: impl FnOnce() -> B,
) -> Result<u64, Failure> {
    run(store, prepare(operation, key)?, &contract(), body).await
}

async fn run<S: Store, B: Future<Output = Result<u64, Failure>>>(
    store: &S,
    call: Call,
    contract: &idem_runtime::engine::Contract<u64, Failure>,
    body: impl FnOnce() -> B,
) -> Result<u64, Failure> {
    let mut access = share(store);
    let run = match enter(&mut access, call, contract).await {
        Entered::Run(run) => run,
        Entered::Answer(answer) => return answer,
    };
    let driven = run.driver().drive(body()).await;
    leave(&mut access, run, driven, contract).await
}

type TestStore = Faulty<MemoryStore>;

fn store() -> TestStore {
    Faulty::new(MemoryStore::builder().clock(TokioClock::new()).build())
}

/// Counts how often bodies ran.
#[derive(Clone, Default)]
struct Runs(Arc<AtomicUsize>);

impl Runs {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// A body that takes `time` and answers `value`.
    fn body(
        &self,
        time: Duration,
        value: u64,
    ) -> impl FnOnce() -> std::pin::Pin<Box<dyn Future<Output = Result<u64, Failure>> + Send>> + use<>
    {
        let runs = self.clone();
        move || {
            Box::pin(async move {
                runs.0.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(time).await;
                Ok(value)
            })
        }
    }
}

async fn quick<S: Store>(
    store: &S,
    operation: &'static Operation,
    value: u64,
) -> Result<u64, Failure> {
    call(store, operation, "7", || async { Ok(value) }).await
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

use tokio::time::sleep;
