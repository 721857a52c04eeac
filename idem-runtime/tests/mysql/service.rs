//! A business: paying orders.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idem_macros::idempotent;
use idem_runtime::ErrorKind;
use idem_runtime::store::sql::Records;
use sqlx::mysql::{MySqlPool, MySqlTransaction};
use sqlx::{Connection as _, Executor as _};
use tokio::sync::{Barrier, Semaphore};

#[derive(Debug, thiserror::Error)]
pub(crate) enum PayError {
    #[error(transparent)]
    Idem(#[from] idem_runtime::Error),
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    #[error("declined")]
    Declined,
}

impl PayError {
    pub(crate) fn idem(&self) -> &idem_runtime::Error {
        match self {
            Self::Idem(error) => error,
            other => panic!("an error of the framework was expected: {other:?}"),
        }
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        self.idem().kind()
    }
}

pub(crate) type Paid = Result<i64, PayError>;

/// How often a body ran, and what it does besides paying.
#[derive(Clone)]
pub(crate) struct Body {
    runs: Arc<AtomicU32>,
    paused: Arc<Semaphore>,
    then: Then,
}

impl Default for Body {
    fn default() -> Self {
        Self {
            runs: Arc::default(),
            paused: Arc::new(Semaphore::new(0)),
            then: Then::Finish,
        }
    }
}

#[derive(Clone)]
pub(crate) enum Then {
    Finish,
    Decline,
    Pause(Duration),
    /// Runs a statement.
    Execute(&'static str),
    /// Locks account 1, meets others, locks account 2; goes on when that fails, if it swallows it.
    Lock {
        met: Arc<Barrier>,
        swallow: bool,
    },
    /// Calls itself.
    Again,
}

impl Body {
    pub(crate) fn then(&self, then: Then) -> Self {
        Self {
            then,
            ..self.clone()
        }
    }

    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    /// Polls `call` until a body pauses, and drops it there: between two statements, since sqlx's
    /// driver cannot go on after a statement that was dropped while it was being prepared.
    pub(crate) async fn drop_in_pause<F: Future>(&self, call: F) {
        tokio::select! {
            _ = call => panic!("the call is over"),
            paused = self.paused.acquire() => paused.unwrap().forget(),
        }
    }

    pub(crate) async fn run(&self, tx: &mut MySqlTransaction<'_>, no: &str, cents: i64) -> Paid {
        self.runs.fetch_add(1, Ordering::SeqCst);
        let insert = sqlx::query("INSERT INTO orders (no, cents) VALUES (?, ?)");
        let done = insert.bind(no).bind(cents).execute(&mut **tx).await?;
        match &self.then {
            Then::Finish => {}
            Then::Decline => return Err(PayError::Declined),
            Then::Pause(pause) => {
                self.paused.add_permits(1);
                tokio::time::sleep(*pause).await;
            }
            Then::Execute(sql) => {
                (**tx).execute(*sql).await?;
            }
            Then::Lock { met, swallow } => {
                add(tx, 1).await?;
                met.wait().await;
                match add(tx, 2).await {
                    Err(_) if *swallow => note(tx, "after").await,
                    added => added?,
                }
            }
            Then::Again => {
                let again = Box::pin(pay(tx, no, cents, self.then(Then::Finish))).await;
                assert_eq!(again.unwrap_err().kind(), ErrorKind::Reentrant);
            }
        }
        Ok(i64::try_from(done.last_insert_id()).unwrap())
    }
}

pub(crate) async fn add(tx: &mut MySqlTransaction<'_>, account: i32) -> Result<(), sqlx::Error> {
    let add = sqlx::query("UPDATE account SET cents = cents + 1 WHERE id = ?");
    add.bind(account).execute(&mut **tx).await.map(|_| ())
}

#[idempotent(crate = ::idem_runtime, scope = "pay", shared_scope, key = "pay:{no}", fingerprint(cents),
    ttl = "1h", wait = "20s", store = "tx", companion = pay_call)]
pub(crate) async fn pay(
    tx: &mut MySqlTransaction<'_>,
    no: &str,
    cents: i64,
    body: Body,
) -> Result<i64, PayError> {
    body.run(tx, no, cents).await
}

#[idempotent(crate = ::idem_runtime, scope = "pay", shared_scope, key = "pay:{no}", fingerprint(cents),
    ttl = "1h", reject, store = "tx")]
pub(crate) async fn pay_or_be_refused(
    tx: &mut MySqlTransaction<'_>,
    no: &str,
    cents: i64,
    body: Body,
) -> Result<i64, PayError> {
    body.run(tx, no, cents).await
}

#[idempotent(crate = ::idem_runtime, scope = "pay", shared_scope, key = "pay:{no}", fingerprint(cents),
    ttl = keep, wait = "20s", store = "tx")]
pub(crate) async fn pay_for(
    tx: &mut MySqlTransaction<'_>,
    no: &str,
    cents: i64,
    keep: Duration,
    body: Body,
) -> Result<i64, PayError> {
    body.run(tx, no, cents).await
}

#[idempotent(crate = ::idem_runtime, scope = "pay", shared_scope, key = "pay:{no}", fingerprint(cents),
    ttl = "1h", wait = "20s", store = "records.on(tx)")]
pub(crate) async fn pay_on(
    records: &Records,
    tx: &mut MySqlTransaction<'_>,
    no: &str,
    cents: i64,
    body: Body,
) -> Result<i64, PayError> {
    body.run(tx, no, cents).await
}

#[idempotent(crate = ::idem_runtime, scope = "pay", shared_scope, key = "pay:{no}", fingerprint(cents),
    ttl = "1h", wait = "20s", store = "pool", tx = tx)]
pub(crate) async fn pay_alone(
    pool: &MySqlPool,
    no: &str,
    cents: i64,
    body: Body,
) -> Result<i64, PayError> {
    body.run(tx, no, cents).await
}

#[idempotent(crate = ::idem_runtime, scope = "pay", shared_scope, key = "pay:{no}", fingerprint(cents),
    ttl = "1h", wait = "20s", store = "pool", tx = tx, retry = 5)]
pub(crate) async fn pay_alone_again(
    pool: &MySqlPool,
    no: &str,
    cents: i64,
    body: Body,
) -> Result<i64, PayError> {
    body.run(tx, no, cents).await
}

/// Pays in a transaction of the caller's own, which is committed whatever the answer is.
pub(crate) async fn pay_and_commit(pool: &MySqlPool, no: &str, cents: i64, body: Body) -> Paid {
    let mut tx = pool.begin().await?;
    let paid = pay(&mut tx, no, cents, body).await;
    tx.commit().await?;
    paid
}

/// Pays inside a savepoint, and takes that back.
pub(crate) async fn pay_and_take_back(tx: &mut MySqlTransaction<'_>, no: &str, body: Body) -> Paid {
    let mut nested = (**tx).begin().await?;
    let paid = pay(&mut nested, no, 1, body).await;
    nested.rollback().await?;
    paid
}

/// A line of the caller's own.
pub(crate) async fn note(tx: &mut MySqlTransaction<'_>, line: &str) {
    let note = sqlx::query("INSERT INTO audit (line) VALUES (?)");
    note.bind(line).execute(&mut **tx).await.unwrap();
}
