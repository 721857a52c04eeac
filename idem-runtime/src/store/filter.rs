//! A filter that tells keys that are certainly new here from those that may have been seen.
//!
//! Where nearly every call has a new key, looking it up first (in a front, or in the table before
//! reserving) is in vain nearly always. This filter says so for a few bits a key and without asking
//! anybody, and the look-up is skipped.
//!
//! # What it may be used for
//! It knows the keys that *this process* has seen since it was made, the latest ones at least. "New
//! here" is not "new": another process may have recorded the key, or this one long ago. So it may
//! only skip what is skipped harmlessly, a look-up before a reservation that is decided by the
//! store's unique index all the same. It never decides whether a call runs. A key that is wrongly
//! taken for known costs the look-up that would have been made without the filter.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use fastbloom::AtomicBloomFilter;

use crate::key::RecordId;

/// How often a key that is new may be taken for known.
pub const FALSE_POSITIVES: f64 = 0.01;

/// The keys that were seen lately. See the [module](self) for what that is good for.
///
/// It holds two generations of `keys` keys each. When the younger one is full it becomes the older
/// one, and what was the older one goes: the `keys` keys seen last are always known, and memory is bounded
/// by about five bytes for each of them in both generations together.
///
/// ```
/// use idem_runtime::key::RecordId;
/// use idem_runtime::store::filter::Filter;
///
/// let filter = Filter::new(10_000);
/// let id = RecordId::new("", "shop::pay", &[], "order:7");
/// assert!(filter.is_new(id));
/// assert!(!filter.is_new(id));
/// ```
pub struct Filter {
    keys: usize,
    generations: RwLock<Generations>,
}

struct Generations {
    young: AtomicBloomFilter<fastbloom::DefaultHasher>,
    old: AtomicBloomFilter<fastbloom::DefaultHasher>,
    /// How many keys the young one holds.
    count: AtomicUsize,
}

impl Filter {
    /// A filter that knows at least the last `keys` keys.
    #[must_use]
    pub fn new(keys: usize) -> Self {
        let keys = keys.max(64);
        Self {
            keys,
            generations: RwLock::new(Generations {
                young: generation(keys),
                old: generation(keys),
                count: AtomicUsize::new(0),
            }),
        }
    }

    /// Whether the key was certainly not seen here lately. It is seen from now on. Of several callers
    /// at the same time more than one may be told that it is new.
    #[must_use]
    pub fn is_new(&self, id: RecordId) -> bool {
        // An id is a digest: each of its bits is as good as any hash of it.
        let mut hash = [0; 8];
        hash.copy_from_slice(&id.as_bytes()[..8]);
        let hash = u64::from_ne_bytes(hash);
        let generations = self
            .generations
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let known = generations.old.contains_hash(hash);
        if generations.young.insert_hash(hash) {
            return false;
        }
        let count = generations.count.fetch_add(1, Ordering::Relaxed) + 1;
        drop(generations);
        if count >= self.keys {
            self.turn_over();
        }
        !known
    }

    /// How many bytes it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let generations = self
            .generations
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        (generations.young.num_bits() + generations.old.num_bits()) / 8
    }

    fn turn_over(&self) {
        let young = generation(self.keys);
        let mut generations = self
            .generations
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        // Others may have come here with the same thought.
        if generations.count.load(Ordering::Relaxed) >= self.keys {
            generations.old = std::mem::replace(&mut generations.young, young);
            generations.count.store(0, Ordering::Relaxed);
        }
    }
}

fn generation(keys: usize) -> AtomicBloomFilter<fastbloom::DefaultHasher> {
    // A key is looked for in two of them.
    AtomicBloomFilter::with_false_pos(FALSE_POSITIVES / 2.0)
        .hasher(fastbloom::DefaultHasher::seeded(&[0; 16]))
        .expected_items(keys)
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter")
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(key: usize) -> RecordId {
        RecordId::new("", "test", &[], &key.to_string())
    }

    #[test]
    fn what_was_seen_is_known_for_as_long_as_promised() {
        // Wherever in a generation the key falls.
        for before in (0..3_000).step_by(50) {
            let filter = Filter::new(1_000);
            for key in 0..before + 1_000 {
                let _ = filter.is_new(id(key));
            }
            assert!(!filter.is_new(id(before)), "{before}");
        }
    }

    #[test]
    fn few_new_keys_are_taken_for_known_and_memory_is_bounded() {
        let filter = Filter::new(10_000);
        let bytes = filter.bytes();
        let mistaken = (0..200_000).filter(|key| !filter.is_new(id(*key))).count();
        assert!(mistaken < 2_000 * 3 / 2, "{mistaken}");
        assert_eq!(filter.bytes(), bytes);
        assert!(bytes < 10_000 * 5, "{bytes}");
    }

    #[test]
    fn threads_agree() {
        // Large enough that no key falls out while its thread is held up.
        let filter = Filter::new(100_000);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let filter = &filter;
                scope.spawn(move || {
                    for key in 0..10_000 {
                        let id = id(thread * 10_000 + key);
                        let _ = filter.is_new(id);
                        assert!(!filter.is_new(id));
                    }
                });
            }
        });
    }
}
