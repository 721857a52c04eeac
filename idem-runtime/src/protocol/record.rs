use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::clock::Moment;
use crate::fingerprint::Fingerprint;

/// Who holds a reservation: unique to one attempt to reserve, in all processes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner([u8; 16]);

// Random per process and counted within it: unique without asking the system's random number
// generator on every call. The token is an identity, not a secret.
static PROCESS: LazyLock<u64> = LazyLock::new(|| {
    getrandom::u64().unwrap_or_else(|_| {
        Moment::from(std::time::SystemTime::now()).as_millis() << 22 ^ u64::from(std::process::id())
    })
});

impl Owner {
    /// A token that no other attempt has.
    #[must_use]
    pub fn fresh() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut token = [0; 16];
        token[..8].copy_from_slice(&PROCESS.to_be_bytes());
        token[8..].copy_from_slice(&COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        Self(token)
    }

    /// Whether this process made the token.
    #[cfg(feature = "_sqlx")]
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.0.starts_with(&PROCESS.to_be_bytes())
    }

    /// The bytes, as they stand in a store.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// From bytes that a store holds.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner(")?;
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

/// A fencing number: a later reservation of the same record always has a higher one. Hand it to
/// the resource that the body writes to, so that it can refuse an owner that lost its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// From a number that a store holds.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is kept under one record id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The payload's digest.
    pub fingerprint: Fingerprint,
    /// The number of the last reservation.
    pub fence: Fence,
    /// Where it stands.
    pub state: State,
}

/// Where a record stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Its body is running, or was when its process died.
    Reserved {
        /// Who holds it.
        owner: Owner,
        /// When others may take it over; `None` where something else ends it (a transaction).
        lease_until: Option<Moment>,
        /// Whether it stays after that until somebody decides ([`OnCrash::Hold`](super::OnCrash)).
        held: bool,
    },
    /// The outcome is recorded.
    Completed {
        /// The envelope.
        outcome: Bytes,
        /// When it was recorded.
        recorded_at: Moment,
        /// Until when it is replayed; `None` for ever.
        keep_until: Option<Moment>,
        /// Until when the key is known, at least as long; `None` for ever.
        known_until: Option<Moment>,
    },
    /// The outcome is gone, the key is still known.
    Tombstone {
        /// Until when.
        until: Option<Moment>,
    },
}

impl Record {
    /// Whether this record counts as absent at `now`, purged or not.
    #[must_use]
    pub fn is_over(&self, now: Moment) -> bool {
        match &self.state {
            State::Reserved { .. } => false,
            State::Completed {
                known_until: until, ..
            }
            | State::Tombstone { until } => until.is_some_and(|until| until <= now),
        }
    }

    /// Whether its outcome counts as gone at `now`, dropped or not.
    #[must_use]
    pub fn is_outcome_gone(&self, now: Moment) -> bool {
        match &self.state {
            State::Reserved { .. } => false,
            State::Completed { keep_until, .. } => keep_until.is_some_and(|until| until <= now),
            State::Tombstone { .. } => true,
        }
    }

    /// The record as it counts at `now`, without an outcome that is gone. `None`: it is over.
    #[must_use]
    pub fn as_of(self, now: Moment) -> Option<Self> {
        if self.is_over(now) {
            return None;
        }
        if !self.is_outcome_gone(now) {
            return Some(self);
        }
        let until = match self.state {
            State::Completed { known_until, .. } => known_until,
            State::Tombstone { until } => until,
            State::Reserved { .. } => return Some(self),
        };
        let state = State::Tombstone { until };
        Some(Self { state, ..self })
    }

    /// Whether this is a reservation whose lease is over at `now`.
    #[must_use]
    pub fn is_lapsed(&self, now: Moment) -> bool {
        matches!(self.state, State::Reserved { lease_until: Some(until), .. } if until <= now)
    }

    /// Whether this is a reservation that nobody takes over after its lease.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.state, State::Reserved { held: true, .. })
    }

    /// Whether this is a reservation whose lease is not over at `now`.
    #[must_use]
    pub fn is_running(&self, now: Moment) -> bool {
        matches!(self.state, State::Reserved { .. }) && !self.is_lapsed(now)
    }

    /// Whether this is `owner`'s reservation, its lease over or not.
    #[must_use]
    pub fn is_reserved_by(&self, owner: Owner) -> bool {
        matches!(self.state, State::Reserved { owner: holder, .. } if holder == owner)
    }
}
