use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::keeper::Acquired;
use super::lane::Lanes;
use super::run::runs;
use super::{LockError, LockGuard, NO_TYPE, OnDrop};
use crate::clock::Moment;
use crate::engine::{StoreLease, Turns, ask, holds};
use crate::error::{Error, ErrorKind};
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;
use crate::protocol::{Fence, Owner, State};
use crate::retention::MAX_RETENTION;
use crate::store::{Request, Reserved, Store};

/// The operation that locks are records of. A function may have the same scope: the record ids
/// differ nevertheless.
const SCOPE: &str = "idem.lock";

/// The lease unless another one is named.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// How long a lock is waited for unless it is told otherwise.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// Locks in a leased store, each found by its name.
///
/// Make one for a process and clone it: callers of all clones stand in one line for each name, in
/// the order in which they came, and one of them asks the store.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use idem_runtime::lock::LeaseLock;
/// use idem_runtime::store::memory::MemoryStore;
///
/// let locks = LeaseLock::new(MemoryStore::new()).lease(Duration::from_secs(5));
/// let guard = locks.acquire("report:2026-07").await?;
/// assert!(locks.try_acquire("report:2026-07").await.is_err());
/// guard.release().await?;
///
/// let rows = locks.run("report:2026-07", async |_fence| 17).await?;
/// assert_eq!(rows, 17);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use]
pub struct LeaseLock<S: Store> {
    store: S,
    lanes: Arc<Lanes>,
    lease: Duration,
    wait: Duration,
    on_drop: OnDrop,
}

/// Who holds a lock, as the store has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Unique to this holding of the lock.
    pub owner: Owner,
    /// Under which number.
    pub fence: Fence,
    /// Since when.
    pub since: Moment,
    /// Until when by the store's clock, unless it is renewed. When that has passed the holder is
    /// gone, or stands still, and whoever asks next has the lock.
    pub lease_until: Option<Moment>,
}

impl<S: Store> LeaseLock<S> {
    /// Locks in this store.
    pub fn new(store: S) -> Self {
        Self {
            store,
            lanes: Arc::default(),
            lease: DEFAULT_LEASE,
            wait: DEFAULT_WAIT,
            on_drop: OnDrop::default(),
        }
    }

    /// How long a lock outlives a holder that was killed; renewed every third of it. Well above the
    /// time that a request to the store may take. From a millisecond to a hundred years.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long [`acquire`](Self::acquire) waits, standing in line included.
    pub fn wait(mut self, budget: Duration) -> Self {
        self.wait = budget;
        self
    }

    /// What becomes of a lock whose guard is dropped without [`release`](LockGuard::release).
    pub fn on_drop(mut self, what: OnDrop) -> Self {
        self.on_drop = what;
        self
    }

    /// Takes the lock, waiting for it if it is held.
    ///
    /// In this process those who wait get it in the order in which they came. Between processes it
    /// goes to whoever asks first once it is free; a line that has had it for two seconds leaves the
    /// others a quarter of a second to ask.
    ///
    /// # Errors
    /// [`LockError::Busy`] when the wait is over, [`LockError::Failed`] if the store cannot be used;
    /// [`ErrorKind::InvalidLease`] in it for a lease that is none, [`ErrorKind::EmptyKeyPart`] for an
    /// empty name.
    ///
    /// # Cancel safety
    /// Who is dropped leaves the line. A lock that was asked for meanwhile is given back in the
    /// background, or ends with its lease.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn acquire(&self, name: &str) -> Result<LockGuard, LockError> {
        self.claim(name, Some(self.wait)).await
    }

    /// Takes the lock if it is free now. Nothing is waited for but the store's answer, and the store
    /// is not asked while somebody in this process holds the lock or is at it.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn try_acquire(&self, name: &str) -> Result<LockGuard, LockError> {
        self.claim(name, None).await
    }

    runs!(
        "The body is dropped; the lock is given back, or held until its lease ends, as \
         [`on_drop`](Self::on_drop) says."
    );

    /// Who holds the lock, by the store; `None` if it is free.
    ///
    /// To look at, not to decide by: when the answer is here it may be another one.
    ///
    /// # Errors
    /// The store cannot be used.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn holder(&self, name: &str) -> Result<Option<Holder>, LockError> {
        let id = self.id(name);
        let stored = self.store.lookup(id).await;
        let stored = stored.map_err(|error| error.at(SCOPE, Some(name), false, id))?;
        Ok(stored.and_then(|stored| match stored.record.state {
            State::Reserved {
                owner, lease_until, ..
            } => Some(Holder {
                owner,
                fence: stored.record.fence,
                since: stored.created_at,
                lease_until,
            }),
            _ => None,
        }))
    }

    /// The record that the lock of this name is, for tools that look into the store.
    #[must_use]
    pub fn id(&self, name: &str) -> RecordId {
        RecordId::new(self.store.namespace(), SCOPE, NO_TYPE, name)
    }

    async fn claim(&self, name: &str, budget: Option<Duration>) -> Result<LockGuard, LockError> {
        let id = self.id(name);
        let at = |error: Error| LockError::Failed(error.at(SCOPE, Some(name), false, id));
        self.check_lease().map_err(at)?;
        let text = super::readable(name).map_err(at)?;
        if holds(id) {
            return Err(LockError::Reentrant);
        }
        let busy = |free_in| LockError::Busy {
            name: name.to_owned(),
            free_in,
        };
        let begun = Instant::now();
        let turn = match self.lanes.enter(id).turn(budget).await {
            Ok(turn) => turn,
            Err(entrant) => return Err(busy(entrant.free_in())),
        };
        let left = || budget.map(|budget| budget.saturating_sub(begun.elapsed()));
        turn.be_courteous(left()).await;
        let mut request = Request::new(id, Fingerprint::NONE, self.lease);
        request.scope = SCOPE;
        request.key_text = Some(text.as_str());
        let mut turns = Turns::new(&self.store, id, left());
        loop {
            let sent_at = Instant::now();
            let asked = ask(&self.store, &request).await;
            let free_in = match asked.map_err(at)? {
                Reserved::Granted(reservation) => {
                    let acquired = Acquired {
                        id,
                        fence: reservation.fence,
                        holding: StoreLease::new(self.store.clone(), reservation, self.lease),
                        lease: self.lease,
                        sent_at,
                        on_drop: self.on_drop,
                    };
                    return acquired.keep(turn);
                }
                Reserved::InProgress { free_in } => free_in,
                _ => return Err(at(no_lock())),
            };
            turn.held_elsewhere(free_in);
            if !turns.pause(free_in).await {
                return Err(busy(free_in));
            }
        }
    }

    fn check_lease(&self) -> Result<(), Error> {
        if self.lease < Duration::from_millis(1) || self.lease > MAX_RETENTION {
            let error = Error::new(ErrorKind::InvalidLease);
            return Err(error.detail(format!("lease is {:?}", self.lease)));
        }
        Ok(())
    }
}

/// A lock is reserved and released, never completed.
fn no_lock() -> Error {
    Error::new(ErrorKind::StoreUnavailable)
        .detail("the store has an outcome where a lock should be")
}

impl<S: Store> fmt::Debug for LeaseLock<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseLock")
            .field("lease", &self.lease)
            .field("wait", &self.wait)
            .field("on_drop", &self.on_drop)
            .finish_non_exhaustive()
    }
}
