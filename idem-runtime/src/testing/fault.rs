//! A store that fails where the test says.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, ErrorKind};
use crate::key::RecordId;
use crate::retention::Retention;
use crate::store::{Held, Request, Reservation, Reserved, Store, Stored};

/// A step of a [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// [`Store::reserve`].
    Reserve,
    /// [`Store::complete`].
    Complete,
    /// [`Store::release`].
    Release,
    /// [`Store::renew`].
    Renew,
    /// [`Store::lookup`].
    Lookup,
    /// [`Store::forget`].
    Forget,
    /// [`Store::purge`].
    Purge,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The request is lost: the step is not done and the caller gets an error.
    Before,
    /// The answer is lost: the step is done and the caller gets an error.
    After,
    /// The step is done this much later.
    Delay(Duration),
    /// The request is lost and no answer ever comes.
    HangBefore,
    /// The step is done and no answer ever comes.
    HangAfter,
}

/// One call of a step, and how it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Called {
    /// Which.
    pub step: Step,
    /// On which record; none for a purge.
    pub id: Option<RecordId>,
    /// What was made to go wrong.
    pub fault: Option<Fault>,
}

/// A store in front of another one that fails on demand and records every call.
///
/// ```
/// use idem_runtime::store::memory::MemoryStore;
/// use idem_runtime::testing::fault::{Fault, Faulty, Step};
///
/// let store = Faulty::new(MemoryStore::new());
/// store.at(Step::Complete, 1, Fault::After); // the first completion's answer is lost
/// assert_eq!(store.count(Step::Complete), 0);
/// ```
#[derive(Clone, Debug)]
pub struct Faulty<S> {
    store: S,
    script: Arc<Mutex<Script>>,
}

#[derive(Debug, Default)]
struct Script {
    once: HashMap<(Step, usize), Fault>,
    always: HashMap<Step, Fault>,
    called: Vec<Called>,
}

impl<S> Faulty<S> {
    /// Nothing goes wrong yet.
    pub fn new(store: S) -> Self {
        Self {
            store,
            script: Arc::default(),
        }
    }

    /// The `nth` call of `step` from the beginning, counted from one, goes wrong.
    pub fn at(&self, step: Step, nth: usize, fault: Fault) {
        self.script().once.insert((step, nth), fault);
    }

    /// The next call of `step` goes wrong.
    pub fn next(&self, step: Step, fault: Fault) {
        let nth = self.count(step) + 1;
        self.at(step, nth, fault);
    }

    /// Every call of `step` goes wrong from now on.
    pub fn always(&self, step: Step, fault: Fault) {
        self.script().always.insert(step, fault);
    }

    /// Nothing goes wrong from now on. A call that hangs goes on hanging.
    pub fn heal(&self) {
        let mut script = self.script();
        script.once.clear();
        script.always.clear();
    }

    /// The calls so far.
    #[must_use]
    pub fn calls(&self) -> Vec<Called> {
        self.script().called.clone()
    }

    /// How often `step` was called.
    #[must_use]
    pub fn count(&self, step: Step) -> usize {
        let script = self.script();
        script.called.iter().filter(|at| at.step == step).count()
    }

    /// The store behind.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.store
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn called(&self, step: Step, id: Option<RecordId>) -> Option<Fault> {
        let mut script = self.script();
        let nth = script.called.iter().filter(|at| at.step == step).count() + 1;
        let fault = script
            .once
            .get(&(step, nth))
            .or_else(|| script.always.get(&step))
            .copied();
        script.called.push(Called { step, id, fault });
        fault
    }

    async fn run<T>(
        &self,
        step: Step,
        id: Option<RecordId>,
        work: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let lost = |what: &str| {
            Err(Error::new(ErrorKind::StoreUnavailable)
                .detail(format!("injected: the {what} of {step:?} was lost")))
        };
        match self.called(step, id) {
            None => work.await,
            Some(Fault::Before) => lost("request"),
            Some(Fault::After) => {
                let _ = work.await;
                lost("answer")
            }
            Some(Fault::Delay(time)) => {
                tokio::time::sleep(time).await;
                work.await
            }
            Some(Fault::HangBefore) => std::future::pending().await,
            Some(Fault::HangAfter) => {
                let _ = work.await;
                std::future::pending().await
            }
        }
    }
}

impl<S: Store> Store for Faulty<S> {
    fn identity(&self) -> Option<usize> {
        self.store.identity()
    }

    fn namespace(&self) -> &str {
        self.store.namespace()
    }

    async fn reserve(&self, request: &Request<'_>) -> Result<Reserved, Error> {
        let work = self.store.reserve(request);
        self.run(Step::Reserve, Some(request.id), work).await
    }

    async fn complete(
        &self,
        reservation: &Reservation,
        outcome: Bytes,
        retention: Retention,
    ) -> Result<Held, Error> {
        let work = self.store.complete(reservation, outcome, retention);
        self.run(Step::Complete, Some(reservation.id), work).await
    }

    async fn release(&self, reservation: &Reservation) -> Result<Held, Error> {
        let work = self.store.release(reservation);
        self.run(Step::Release, Some(reservation.id), work).await
    }

    async fn renew(&self, reservation: &Reservation, lease: Duration) -> Result<Held, Error> {
        let work = self.store.renew(reservation, lease);
        self.run(Step::Renew, Some(reservation.id), work).await
    }

    async fn lookup(&self, id: RecordId) -> Result<Option<Stored>, Error> {
        let work = self.store.lookup(id);
        self.run(Step::Lookup, Some(id), work).await
    }

    async fn forget(&self, id: RecordId) -> Result<bool, Error> {
        let work = self.store.forget(id);
        self.run(Step::Forget, Some(id), work).await
    }

    async fn purge(&self, limit: usize) -> Result<usize, Error> {
        self.run(Step::Purge, None, self.store.purge(limit)).await
    }

    fn changed(&self, id: RecordId) -> impl Future<Output = ()> + Send {
        self.store.changed(id)
    }
}
