//! Copies in this process's memory, bounded by bytes.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::clock::End;
use super::{BARRIER, Front, is_late};
use crate::error::Error;
use crate::key::RecordId;
use crate::store::{Kept, Until};

/// How long a [`MemoryFront`] answers from one copy unless it is told otherwise.
pub const DEFAULT_MAX_AGE: Duration = Duration::from_secs(60);

/// Copies in this process.
///
/// It is bounded by bytes: the copies asked for least go first. A copy is answered from for at most
/// `max_age`, however long its record is kept: a record that another process forgets is replayed
/// here until then.
///
/// ```
/// use idem_runtime::store::tiered::MemoryFront;
///
/// let front = MemoryFront::new(64 << 20);
/// assert_eq!(front.bytes(), 0);
/// ```
#[derive(Clone)]
pub struct MemoryFront {
    inner: Arc<Inner>,
}

struct Inner {
    cache: Cache<RecordId, Entry, ByBytes>,
    max_age: Duration,
    /// Locked while a copy is put or removed.
    removed: Mutex<Removed>,
}

/// Records that were removed, whose copies are kept out. Not in the cache, where copies of others
/// would evict them.
#[derive(Default)]
struct Removed {
    until: HashMap<RecordId, Instant>,
    /// The same in the order of their ends, with one entry for each removal.
    queue: VecDeque<(Instant, RecordId)>,
}

impl Removed {
    fn keep_out(&mut self, id: RecordId) {
        let now = Instant::now();
        self.drop_over(now);
        self.until.insert(id, now + BARRIER);
        self.queue.push_back((now + BARRIER, id));
    }

    fn keeps_out(&mut self, id: RecordId) -> bool {
        self.drop_over(Instant::now());
        self.until.contains_key(&id)
    }

    fn drop_over(&mut self, now: Instant) {
        while let Some((end, id)) = self.queue.front().copied()
            && end <= now
        {
            self.queue.pop_front();
            // Unless it was removed again since.
            if self.until.get(&id) == Some(&end) {
                self.until.remove(&id);
            }
        }
    }
}

#[derive(Clone)]
struct Entry {
    kept: Kept,
    end: End,
}

#[derive(Clone)]
struct ByBytes;

/// What an entry takes besides its outcome, by and large.
const OVERHEAD: usize = size_of::<RecordId>() + size_of::<Entry>() + 64;

impl Weighter<RecordId, Entry> for ByBytes {
    fn weight(&self, _: &RecordId, entry: &Entry) -> u64 {
        (OVERHEAD + entry.kept.outcome.len()) as u64
    }
}

impl MemoryFront {
    /// A front of at most so many bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self::with_max_age(bytes, DEFAULT_MAX_AGE)
    }

    /// A front that answers from one copy for at most `max_age`.
    #[must_use]
    pub fn with_max_age(bytes: u64, max_age: Duration) -> Self {
        // For the size of its tables to begin with; they grow.
        let entries = usize::try_from(bytes / 1024)
            .unwrap_or(usize::MAX)
            .clamp(16, 1 << 20);
        Self {
            inner: Arc::new(Inner {
                cache: Cache::with_weighter(entries, bytes, ByBytes),
                max_age,
                removed: Mutex::default(),
            }),
        }
    }

    /// How many bytes it takes now, copies that are over and not yet dropped included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.inner.cache.weight()
    }

    /// How many copies it holds, those that are over and not yet dropped included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.cache.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops what is over. Nobody is answered from it in any case; this only frees memory before it
    /// is needed.
    pub fn purge(&self) {
        self.inner.cache.retain(|_, entry| !entry.end.is_over());
    }

    #[inline]
    fn live(&self, id: RecordId) -> Option<Entry> {
        let entry = self.inner.cache.get(&id)?;
        if entry.end.is_over() {
            self.drop_over(id);
            return None;
        }
        Some(entry)
    }

    #[cold]
    fn drop_over(&self, id: RecordId) {
        self.inner.cache.remove_if(&id, |entry| entry.end.is_over());
    }

    fn removed(&self) -> MutexGuard<'_, Removed> {
        let removed = self.inner.removed.lock();
        removed.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Front for MemoryFront {
    const REMOTE: bool = false;

    #[inline]
    async fn get(&self, id: RecordId) -> Result<Option<Kept>, Error> {
        Ok(self.live(id).map(|entry| entry.kept))
    }

    async fn get_to_copy(&self, id: RecordId) -> Result<Option<(Kept, Until)>, Error> {
        Ok(self.live(id).map(|entry| {
            let until = entry.end.instant().map_or(Until::FOREVER, Until::at);
            (entry.kept, until)
        }))
    }

    async fn put(&self, id: RecordId, kept: &Kept, until: Until) -> Result<(), Error> {
        let entry = Entry {
            kept: Kept {
                // Of its own, so that it does not keep a larger buffer alive, and weighs what it
                // says.
                outcome: Bytes::copy_from_slice(&kept.outcome),
                ..kept.clone()
            },
            end: End::of(until.instant(), self.inner.max_age),
        };
        // Whether it is late is asked under the lock: no removal is over that came after its record
        // was read.
        let mut removed = self.removed();
        if !is_late(until) && !removed.keeps_out(id) {
            self.inner.cache.insert(id, entry);
        }
        Ok(())
    }

    async fn remove(&self, id: RecordId) -> Result<(), Error> {
        let mut removed = self.removed();
        removed.keep_out(id);
        self.inner.cache.remove(&id);
        Ok(())
    }
}

impl fmt::Debug for MemoryFront {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryFront")
            .field("max_age", &self.inner.max_age)
            .finish_non_exhaustive()
    }
}
