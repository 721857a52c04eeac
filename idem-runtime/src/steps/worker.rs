//! Runs on what other processes have left.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio::time::Instant;

use super::claim::failed;
use super::error::SagaError;
use super::saga::Saga;
use super::sql::SagaDialect;
use super::stop::Stop;
use crate::engine::{Backoff, run_to_end};
use crate::error::Error;
use crate::key::RecordId;
use crate::outcome::Outcome;

/// How many sagas a worker runs at a time unless it is told otherwise.
pub const DEFAULT_CONCURRENCY: usize = 4;
/// How long a worker that is told to stop waits for the attempts it runs, unless it is told otherwise.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(30);
/// The shortest pause between two looks that find nothing.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// Runs on what other processes have left: sagas whose lease has expired, and those whose next attempt
/// is due. Any number of workers, in any number of processes, share the work; one worker serves as many
/// definitions as it is [given](Self::and).
#[derive(Clone)]
#[must_use = "`run_until` or `run_once` makes it work"]
pub struct Worker {
    sagas: Vec<Arc<dyn Works>>,
    batch: u32,
    concurrency: usize,
    grace: Duration,
}

/// A saga that a worker has run on.
#[non_exhaustive]
#[must_use = "it may be stuck, or begun under another list of steps"]
pub struct Resumed {
    /// Its id.
    pub id: RecordId,
    /// Its definition's name.
    pub name: String,
    key: String,
    /// What came of it; `Ok`: completed.
    pub outcome: Result<(), SagaError>,
}

impl Resumed {
    /// Its key, in the canonical text that is stored. `Debug` does not show it: keys carry names and
    /// card numbers.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A definition, whatever its database, input and context.
trait Works: Send + Sync {
    fn name(&self) -> &str;
    fn due(&self, limit: u32) -> Boxed<'_, Result<Vec<(RecordId, String)>, Error>>;
    fn resume(&self, id: RecordId, stop: Stop) -> Boxed<'_, Option<Result<(), SagaError>>>;
}

impl<D, I, C> Works for Saga<D, I, C>
where
    D: SagaDialect,
    I: Outcome + Send + Sync + 'static,
    C: Clone + Send + Sync + 'static,
{
    fn name(&self) -> &str {
        &self.definition.name
    }

    fn due(&self, limit: u32) -> Boxed<'_, Result<Vec<(RecordId, String)>, Error>> {
        let definition = Arc::clone(&self.definition);
        // To its end: a driver need not survive a statement that is dropped.
        let look = run_to_end(async move {
            let texts = definition.table.texts::<D>();
            let mut conn = definition.pool.acquire().await?;
            D::due_sagas(&mut conn, texts, &definition.name, i64::from(limit)).await
        });
        Box::pin(async move { look.await.map_err(failed::<D>) })
    }

    fn resume(&self, id: RecordId, stop: Stop) -> Boxed<'_, Option<Result<(), SagaError>>> {
        Box::pin(async move {
            let outcome = Saga::resume(self, id, stop).await?;
            Some(outcome.map(|_results| ()))
        })
    }
}

/// A saga that was found due.
struct Due {
    saga: Arc<dyn Works>,
    id: RecordId,
    key: String,
}

/// The sagas in hand. Dropped, they stop at once, as in a crash.
#[derive(Default)]
struct Running {
    tasks: JoinSet<Option<Resumed>>,
    ids: HashMap<Id, RecordId>,
    stop: Stop,
}

impl Running {
    fn has(&self, id: RecordId) -> bool {
        self.ids.values().any(|running| *running == id)
    }

    fn run(&mut self, due: Due) {
        let (id, stop) = (due.id, self.stop.clone());
        let task = self.tasks.spawn(resume(due, stop));
        self.ids.insert(task.id(), id);
    }

    /// What the next saga to end has come to; `None` if there is none, or somebody else has it.
    async fn next(&mut self) -> Option<Resumed> {
        match self.tasks.join_next_with_id().await? {
            Ok((task, resumed)) => {
                self.ids.remove(&task);
                resumed
            }
            Err(error) => {
                self.ids.remove(&error.id());
                tracing::error!(%error, "a saga's run has not come to its end");
                None
            }
        }
    }
}

impl Worker {
    /// A worker without a definition; see [`Saga::worker`].
    pub fn new() -> Self {
        Self {
            sagas: Vec::new(),
            batch: 20,
            concurrency: DEFAULT_CONCURRENCY,
            grace: DEFAULT_GRACE,
        }
    }

    /// Serves this definition too, of any database.
    pub fn and<D, I, C>(mut self, saga: &Saga<D, I, C>) -> Self
    where
        D: SagaDialect,
        I: Outcome + Send + Sync + 'static,
        C: Clone + Send + Sync + 'static,
    {
        self.sagas.push(Arc::new(saga.clone()));
        self
    }

    /// How many sagas of each definition are looked for at a time: 20 unless it is told otherwise.
    pub fn batch(mut self, sagas: u32) -> Self {
        self.batch = sagas.max(1);
        self
    }

    /// How many sagas are run at a time: [`DEFAULT_CONCURRENCY`] unless it is told otherwise, and at
    /// least one. Each takes a connection while a statement or a transactional step of it runs, and a
    /// second one now and then to extend its lease: give the pool twice as many.
    pub fn concurrency(mut self, sagas: usize) -> Self {
        self.concurrency = sagas.max(1);
        self
    }

    /// How long the attempts in hand may go on once the worker is told to stop: [`DEFAULT_GRACE`] unless
    /// it is told otherwise. Those that take longer are dropped, and their sagas are run on when their
    /// leases have expired.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Runs on what is due, several at a time, the longest due first, and says what came of each. What
    /// another worker has taken meanwhile is left out.
    ///
    /// # Errors
    /// The database cannot be asked for what is due.
    ///
    /// # Cancel safety
    /// As [`Saga::start`]: the sagas in hand are left until their leases have expired.
    pub async fn run_once(&self) -> Result<Vec<Resumed>, Error> {
        let mut due = VecDeque::new();
        for saga in &self.sagas {
            due.extend(found(saga, saga.due(self.batch).await?));
        }
        let (mut running, mut resumed) = (Running::default(), Vec::new());
        loop {
            while running.ids.len() < self.concurrency
                && let Some(next) = due.pop_front()
            {
                running.run(next);
            }
            if running.ids.is_empty() {
                return Ok(resumed);
            }
            resumed.extend(running.next().await);
        }
    }

    /// Runs on what is due, several at a time, and looks again after `pause` (shortened by up to half at
    /// random, and never shorter than 50 ms) where there was nothing, until `stop` is ready. What came
    /// of each goes to the log.
    ///
    /// When `stop` is ready no further saga is taken. The attempts in hand come to their end, within
    /// the [grace](Self::grace); before its next attempt a saga is let go, due at once for another
    /// worker.
    ///
    /// # Cancel safety
    /// As [`run_once`](Self::run_once).
    pub async fn run_until(&self, stop: impl Future<Output = ()>, pause: Duration) {
        let pause = pause.max(SHORTEST_PAUSE);
        let mut stop = pin!(stop);
        let (mut due, mut running) = (VecDeque::new(), Running::default());
        let mut look_at = Instant::now();
        loop {
            if due.is_empty() && running.ids.len() < self.concurrency && look_at <= Instant::now() {
                due = tokio::select! {
                    biased;
                    () = &mut stop => break,
                    due = self.look(&running) => due,
                };
                look_at = Instant::now() + jittered(pause);
            }
            while running.ids.len() < self.concurrency
                && let Some(next) = due.pop_front()
            {
                running.run(next);
            }
            tokio::select! {
                biased;
                () = &mut stop => break,
                resumed = running.next(), if !running.ids.is_empty() => {
                    // A database that does not answer is not asked again at once.
                    let found = resumed.is_some_and(|one| !matches!(one.outcome, Err(SagaError::Idem(_))));
                    if found {
                        look_at = Instant::now();
                    }
                }
                () = tokio::time::sleep_until(look_at), if running.ids.len() < self.concurrency => {}
            }
        }
        running.stop.ask_for();
        let ending = async {
            while !running.ids.is_empty() {
                let _ = running.next().await;
            }
        };
        if tokio::time::timeout(self.grace, ending).await.is_err() {
            let left = running.ids.len();
            tracing::warn!(
                left,
                "sagas were left in the middle of an attempt: the worker was told to stop"
            );
        }
    }

    /// What is due and not in hand, of each definition in turn, so that none keeps the others waiting.
    async fn look(&self, running: &Running) -> VecDeque<Due> {
        let mut found_of = Vec::new();
        for saga in &self.sagas {
            match saga.due(self.batch).await {
                Ok(due) => found_of.push(found(saga, due)),
                Err(error) => {
                    tracing::warn!(saga = saga.name(), %error, "sagas cannot be looked for")
                }
            }
        }
        let mut all = VecDeque::new();
        loop {
            let before = all.len();
            all.extend(found_of.iter_mut().filter_map(Iterator::next));
            if all.len() == before {
                break;
            }
        }
        all.retain(|due: &Due| !running.has(due.id));
        all
    }
}

fn found(saga: &Arc<dyn Works>, due: Vec<(RecordId, String)>) -> impl Iterator<Item = Due> {
    let saga = Arc::clone(saga);
    due.into_iter().map(move |(id, key)| Due {
        saga: Arc::clone(&saga),
        id,
        key,
    })
}

async fn resume(due: Due, stop: Stop) -> Option<Resumed> {
    let Due { saga, id, key } = due;
    let outcome = saga.resume(id, stop).await?;
    let name = saga.name();
    match &outcome {
        Ok(()) => tracing::info!(saga = name, %id, "a saga was run on and has completed"),
        Err(SagaError::Compensated(_)) => {
            tracing::info!(saga = name, %id, "a saga was run on and is compensated");
        }
        Err(error) => {
            tracing::warn!(saga = name, %id, %error, "a saga was run on and has not ended");
        }
    }
    Some(Resumed {
        id,
        name: name.to_owned(),
        key,
        outcome,
    })
}

fn jittered(pause: Duration) -> Duration {
    let mut pauses = Backoff::new(Some(Duration::MAX), pause, pause);
    pauses.next().unwrap_or(pause)
}

impl Default for Worker {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sagas: Vec<_> = self.sagas.iter().map(|saga| saga.name()).collect();
        f.debug_struct("Worker")
            .field("sagas", &sagas)
            .field("batch", &self.batch)
            .field("concurrency", &self.concurrency)
            .field("grace", &self.grace)
            .finish()
    }
}

impl fmt::Debug for Resumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resumed")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}
