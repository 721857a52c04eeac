//! An order in four steps: `reserve` and `book` in the database, `charge` and `ship` elsewhere.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idem_runtime::steps::{
    Retries, Saga, SagaDialect, SagaStatus, Step, StepError, StepState, StepTx, Steps, Undo,
};
use serde::{Deserialize, Serialize};
use sqlx::Pool;

use crate::world::{number, run};

pub(crate) const STEPS: [&str; 4] = ["reserve", "charge", "book", "ship"];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) no: i64,
    pub(crate) cents: i64,
}

pub(crate) fn order(no: i64) -> Order {
    Order { no, cents: 990 }
}

pub(crate) fn key(no: i64) -> String {
    format!("order:{no}")
}

/// What happens where a step comes by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Do {
    /// Says so to the parent process, and stays.
    SayAndStay,
    /// Waits for the semaphore [`Shop::go`].
    Wait,
    /// Waits for nothing.
    Hang,
    Refuse,
    Unknown,
    Retry,
    Panic,
}

/// What the steps are run with.
pub(crate) struct Shop<D: SagaDialect> {
    pub(crate) pool: Pool<D>,
    inner: Arc<Inner>,
}

impl<D: SagaDialect> Clone for Shop<D> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            inner: Arc::clone(&self.inner),
        }
    }
}

struct Inner {
    /// What happens at a point, and how many times yet.
    script: Mutex<HashMap<String, (Do, u32)>>,
    /// The points that were come by, and what compensations were told.
    log: Mutex<Vec<String>>,
    go: tokio::sync::Semaphore,
    /// Told apart from that of every other process.
    nonce: String,
}

impl<D: SagaDialect> Shop<D> {
    pub(crate) fn new(pool: &Pool<D>) -> Self {
        let unique = idem_runtime::protocol::Owner::fresh();
        Self {
            pool: pool.clone(),
            inner: Arc::new(Inner {
                script: Mutex::default(),
                log: Mutex::default(),
                go: tokio::sync::Semaphore::new(0),
                nonce: unique
                    .as_bytes()
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect(),
            }),
        }
    }

    /// At `before:step`, `after:step`, `undo-before:step`, `undo-after:step`, the next `times`.
    pub(crate) fn at(&self, point: &str, what: Do, times: u32) -> &Self {
        let mut script = self
            .inner
            .script
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        script.insert(point.to_owned(), (what, times));
        drop(script);
        self
    }

    pub(crate) fn go(&self) {
        self.inner.go.add_permits(1000);
    }

    pub(crate) fn log(&self) -> Vec<String> {
        let log = self
            .inner
            .log
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        log.clone()
    }

    pub(crate) fn times(&self, point: &str) -> usize {
        self.log().iter().filter(|entry| *entry == point).count()
    }

    pub(crate) fn mark(&self, entry: &str) {
        self.note(entry.to_owned());
    }

    /// The mark of what this shop makes.
    pub(crate) fn nonce(&self) -> &str {
        &self.inner.nonce
    }

    fn note(&self, entry: String) {
        let mut log = self
            .inner
            .log
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        log.push(entry);
    }

    async fn point(&self, point: &str) -> Result<(), StepError> {
        self.note(point.to_owned());
        let what = {
            let mut script = self
                .inner
                .script
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            match script.get_mut(point) {
                Some((what, times)) if *times > 0 => {
                    *times -= 1;
                    Some(*what)
                }
                _ => None,
            }
        };
        match what {
            None => Ok(()),
            Some(Do::SayAndStay) => {
                idem_test_support::child::say(point);
                std::future::pending().await
            }
            Some(Do::Wait) => {
                self.inner.go.acquire().await.unwrap().forget();
                Ok(())
            }
            Some(Do::Hang) => std::future::pending().await,
            Some(Do::Refuse) => Err(StepError::refused("refused")),
            Some(Do::Unknown) => Err(StepError::unknown("no answer")),
            Some(Do::Retry) => Err(StepError::retry("not now")),
            Some(Do::Panic) => panic!("the shop is on fire"),
        }
    }

    /// The other side: does once what it is asked to under one key, and counts.
    async fn other_side(
        &self,
        step: &Step<Order, Self>,
        name: &str,
        undo: Option<&str>,
    ) -> Result<(), StepError> {
        let (okey, no) = (step.idempotency_key(), step.input().no);
        let fence = step.fence().get();
        let reference = undo.map_or_else(
            || format!("{name}-{no}-{}", self.inner.nonce),
            str::to_owned,
        );
        let again = match D::INDEX {
            2 => "ON DUPLICATE KEY UPDATE calls = calls + 1",
            _ => "ON CONFLICT (okey) DO UPDATE SET calls = other_side.calls + 1",
        };
        let undo = i64::from(undo.is_some());
        let pool = self.pool.clone();
        let sql = format!(
            "INSERT INTO other_side VALUES \
                 ('{okey}', '{name}', {no}, {undo}, '{reference}', 1, {fence}) {again}"
        );
        // A request that is sent arrives, whatever becomes of who has sent it.
        let sent = tokio::spawn(async move {
            let mut conn = pool.acquire().await?;
            run::<D>(&mut conn, sql).await
        });
        sent.await.unwrap()?;
        Ok(())
    }
}

async fn effect<D: SagaDialect>(
    step: &mut StepTx<D, Order, Shop<D>>,
    name: &str,
    undo: Option<&str>,
) -> Result<String, StepError> {
    let no = step.input().no;
    let nonce = step.context().inner.nonce.clone();
    let reference = undo.map_or_else(|| format!("{name}-{no}-{nonce}"), str::to_owned);
    let undo = i64::from(undo.is_some());
    let sql = format!("INSERT INTO effect VALUES ('{name}', {no}, {undo}, '{reference}')");
    run::<D>(step.tx(), sql).await?;
    Ok(reference)
}

async fn in_database<D: SagaDialect>(
    mut step: StepTx<D, Order, Shop<D>>,
    name: &'static str,
) -> Result<String, StepError> {
    let shop = step.context().clone();
    shop.point(&format!("before:{name}")).await?;
    let reference = effect(&mut step, name, None).await?;
    shop.point(&format!("after:{name}")).await?;
    Ok(reference)
}

async fn undo_in_database<D: SagaDialect>(
    mut step: StepTx<D, Order, Shop<D>>,
    name: &'static str,
    reference: String,
) -> Result<(), StepError> {
    let shop = step.context().clone();
    shop.note(format!("undo:{name}:{reference}"));
    shop.point(&format!("undo-before:{name}")).await?;
    effect(&mut step, name, Some(&reference)).await?;
    shop.point(&format!("undo-after:{name}")).await
}

async fn elsewhere<D: SagaDialect>(
    step: Step<Order, Shop<D>>,
    name: &'static str,
) -> Result<String, StepError> {
    let shop = step.context().clone();
    shop.point(&format!("before:{name}")).await?;
    shop.other_side(&step, name, None).await?;
    shop.point(&format!("after:{name}")).await?;
    Ok(format!("{name}-{}-{}", step.input().no, shop.inner.nonce))
}

async fn undo_elsewhere<D: SagaDialect>(
    step: Step<Order, Shop<D>>,
    name: &'static str,
    told: Undo<String>,
) -> Result<(), StepError> {
    let shop = step.context().clone();
    shop.note(match &told {
        Undo::Done(reference) => format!("undo:{name}:{reference}"),
        Undo::Unknown => format!("undo:{name}:unknown"),
    });
    shop.point(&format!("undo-before:{name}")).await?;
    let reference = match told {
        Undo::Done(reference) => reference,
        Undo::Unknown => "unknown".to_owned(),
    };
    shop.other_side(&step, name, Some(&reference)).await?;
    shop.point(&format!("undo-after:{name}")).await
}

/// Attempts follow each other quickly; a lease outlasts a slow machine.
pub(crate) fn steps<D: SagaDialect>(shop: &Shop<D>) -> Steps<D, Order, Shop<D>> {
    let millis = Duration::from_millis;
    Steps::named("order.place", shop.clone())
        .step(
            "reserve",
            |step| in_database(step, "reserve"),
            |step, was| undo_in_database(step, "reserve", was),
        )
        .outside(
            "charge",
            |step| elsewhere(step, "charge"),
            |step, was| undo_elsewhere(step, "charge", was),
        )
        .step(
            "book",
            |step| in_database(step, "book"),
            |step, was| undo_in_database(step, "book", was),
        )
        .outside(
            "ship",
            |step| elsewhere(step, "ship"),
            |step, was| undo_elsewhere(step, "ship", was),
        )
        .lease(Duration::from_secs(60))
        .wait(Duration::from_secs(30))
        .retries(
            Retries::default()
                .at_once(2)
                .pauses(millis(1), millis(5))
                .later(Duration::from_secs(60), Duration::from_secs(60))
                .in_all(4),
        )
}

pub(crate) fn saga<D: SagaDialect>(shop: &Shop<D>) -> Saga<D, Order, Shop<D>> {
    steps(shop).build(&shop.pool).unwrap()
}

/// How often each step of the order had its effect, and its compensation: `(done, undone)`.
pub(crate) async fn effects<D: SagaDialect>(pool: &Pool<D>, no: i64) -> Vec<(i64, i64)> {
    let mut counts = Vec::new();
    for step in STEPS {
        let table = match step {
            "reserve" | "book" => "effect",
            _ => "other_side",
        };
        let mut pair = Vec::new();
        for undo in [0, 1] {
            let sql = format!(
                "SELECT COUNT(*) FROM {table} WHERE step = '{step}' AND no = {no} AND undone = {undo}"
            );
            pair.push(number(pool, sql).await);
        }
        counts.push((pair[0], pair[1]));
    }
    counts
}

pub(crate) const ALL_DONE: [(i64, i64); 4] = [(1, 0); 4];

/// Nothing happened that was not undone, and nothing was undone twice. What may have happened
/// elsewhere may be undone without having happened.
#[track_caller]
pub(crate) fn assert_all_undone(effects: &[(i64, i64)]) {
    for (at, effect) in effects.iter().enumerate() {
        let outside = at % 2 == 1;
        let right = matches!(effect, (0, 0) | (1, 1)) || (outside && *effect == (0, 1));
        assert!(right, "{}: {effects:?}", STEPS[at]);
    }
}

pub(crate) fn states(status: &SagaStatus) -> Vec<StepState> {
    status.steps.iter().map(|step| step.state).collect()
}
