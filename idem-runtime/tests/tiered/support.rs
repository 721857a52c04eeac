//! What these tests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use idem_runtime::__private::{
    Call, Entered, FingerprintBuilder, KeyBuilder, Operation, Run as _, Scope, close, contract,
    enter, key_part, leave, open,
};
use idem_runtime::bytes::Bytes;
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::key::RecordId;
use idem_runtime::store::tiered::{AfterCommit, Front, Tier};
use idem_runtime::store::{Kept, Until};
use idem_runtime::{Error, ErrorKind};
use idem_test_support::{Postgres, TestDatabase};
use sqlx::{PgPool, PgTransaction};

/// A service's error.
#[derive(Debug)]
pub(crate) enum Failure {
    Declined,
    Idem(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

#[track_caller]
pub(crate) fn refused(answer: Result<u64, Failure>) -> ErrorKind {
    match answer {
        Err(Failure::Idem(error)) => error.kind(),
        other => panic!("not refused: {other:?}"),
    }
}

pub(crate) static DAY: Operation = Operation::new(Scope::fixed("pay")).retention_millis(86_400_000);
pub(crate) static SHORT: Operation = Operation::new(Scope::fixed("pay")).retention_millis(400);

pub(crate) fn prepare(operation: &'static Operation, key: &str, payload: u64) -> Call {
    fn here() {}
    let mut builder = KeyBuilder::new(":");
    builder.literal("order:");
    key_part(&mut builder, key);
    let mut fingerprint = FingerprintBuilder::new();
    fingerprint.part(&payload);
    Call::prepare(operation, &here, &[], builder, fingerprint).unwrap()
}

pub(crate) fn id(key: &str) -> RecordId {
    prepare(&DAY, key, 0).id()
}

pub(crate) fn kept(outcome: &[u8]) -> Kept {
    let fingerprint = Fingerprint::from_bytes([1; 17]);
    Kept::new(fingerprint, Bytes::copy_from_slice(outcome), None)
}

/// A database with the record table and one for effects.
pub(crate) async fn database() -> (TestDatabase, PgPool) {
    let database = Postgres::database().await;
    let pool = database.pool(8).await;
    idem_runtime::store::postgres::migrate(&pool).await.unwrap();
    database
        .execute("CREATE TABLE effect (key text NOT NULL, value bigint NOT NULL)")
        .await;
    (database, pool)
}

pub(crate) async fn effects(pool: &PgPool, key: &str) -> i64 {
    let count = sqlx::query_scalar("SELECT count(*) FROM effect WHERE key = $1");
    count.bind(key).fetch_one(pool).await.unwrap()
}

async fn effect(tx: &mut PgTransaction<'_>, key: &str, value: u64) -> Result<u64, Failure> {
    sqlx::query("INSERT INTO effect (key, value) VALUES ($1, $2)")
        .bind(key)
        .bind(i64::try_from(value).unwrap())
        .execute(&mut **tx)
        .await
        .unwrap();
    Ok(value)
}

/// What is called, and with what.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) operation: &'static Operation,
    pub(crate) key: &'a str,
    pub(crate) payload: u64,
    /// What the body answers if it runs.
    pub(crate) value: u64,
}

pub(crate) fn pay(key: &str, value: u64) -> Asked<'_> {
    Asked {
        operation: &DAY,
        key,
        payload: 0,
        value,
    }
}

/// `store = "front.over(tx)"`, with `.noting(after)` if there is one.
pub(crate) async fn over<F: Front>(
    tier: &Tier<F>,
    tx: &mut PgTransaction<'_>,
    after: Option<&AfterCommit<F>>,
    asked: Asked<'_>,
) -> Result<u64, Failure> {
    macro_rules! access {
        () => {
            &mut match after {
                Some(after) => tier.over(tx).noting(after),
                None => tier.over(tx),
            }
        };
    }
    let contract = contract::<u64, Failure>();
    let call = prepare(asked.operation, asked.key, asked.payload);
    let run = match enter(access!(), call, &contract).await {
        Entered::Run(run) => run,
        Entered::Answer(answer) => return answer,
    };
    let driven = run.driver().drive(effect(tx, asked.key, asked.value)).await;
    leave(access!(), run, driven, &contract).await
}

/// The same in a transaction that is committed.
pub(crate) async fn committed<F: Front>(
    tier: &Tier<F>,
    pool: &PgPool,
    asked: Asked<'_>,
) -> Result<u64, Failure> {
    let mut tx = pool.begin().await.unwrap();
    let answer = over(tier, &mut tx, None, asked).await;
    tx.commit().await.unwrap();
    answer
}

/// `store = "front.pool(&pool)", tx = "tx"`.
pub(crate) async fn owned<F: Front>(
    tier: &Tier<F>,
    pool: &PgPool,
    asked: Asked<'_>,
) -> Result<u64, Failure> {
    owned_with(tier, pool, asked, async || ()).await
}

pub(crate) async fn owned_with<F: Front>(
    tier: &Tier<F>,
    pool: &PgPool,
    asked: Asked<'_>,
    meanwhile: impl AsyncFnOnce(),
) -> Result<u64, Failure> {
    let contract = contract::<u64, Failure>();
    let call = prepare(asked.operation, asked.key, asked.payload);
    let mut run = match open(&tier.pool(pool), call, &contract).await {
        Entered::Run(run) => run,
        Entered::Answer(answer) => return answer,
    };
    let driver = run.driver();
    let tx = run.transaction();
    let body = async {
        let answer = effect(tx, asked.key, asked.value).await;
        meanwhile().await;
        if asked.value == 0 {
            Err(Failure::Declined)
        } else {
            answer
        }
    };
    let driven = driver.drive(body).await;
    close(run, driven, &contract).await
}

/// What a [`Flaky`] front does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    Works,
    Fails,
    Hangs,
}

/// A remote front that can be broken, and counts what it is asked.
#[derive(Clone, Debug)]
pub(crate) struct Flaky<F> {
    front: F,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    mode: AtomicU8,
    gets: AtomicUsize,
    puts: AtomicUsize,
}

impl<F> Flaky<F> {
    pub(crate) fn new(front: F) -> Self {
        Self {
            front,
            state: Arc::default(),
        }
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.state.mode.store(mode as u8, Ordering::SeqCst);
    }

    pub(crate) fn gets(&self) -> usize {
        self.state.gets.load(Ordering::SeqCst)
    }

    pub(crate) fn puts(&self) -> usize {
        self.state.puts.load(Ordering::SeqCst)
    }

    async fn obey(&self) -> Result<(), Error> {
        match self.state.mode.load(Ordering::SeqCst) {
            mode if mode == Mode::Fails as u8 => Err(Error::new(ErrorKind::StoreUnavailable)),
            mode if mode == Mode::Hangs as u8 => std::future::pending().await,
            _ => Ok(()),
        }
    }
}

impl<F: Front> Front for Flaky<F> {
    async fn get(&self, id: RecordId) -> Result<Option<Kept>, Error> {
        self.state.gets.fetch_add(1, Ordering::SeqCst);
        self.obey().await?;
        self.front.get(id).await
    }

    async fn get_to_copy(&self, id: RecordId) -> Result<Option<(Kept, Until)>, Error> {
        self.state.gets.fetch_add(1, Ordering::SeqCst);
        self.obey().await?;
        self.front.get_to_copy(id).await
    }

    async fn put(&self, id: RecordId, kept: &Kept, until: Until) -> Result<(), Error> {
        self.state.puts.fetch_add(1, Ordering::SeqCst);
        self.obey().await?;
        self.front.put(id, kept, until).await
    }

    async fn remove(&self, id: RecordId) -> Result<(), Error> {
        self.obey().await?;
        self.front.remove(id).await
    }
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
