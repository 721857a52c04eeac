//! The records of one lock, and which of them are due to go, soonest first.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Moment;
use crate::key::RecordId;
use crate::protocol::{Fence, Record, State};
use crate::store::Stored;

#[derive(Debug, Default)]
pub(super) struct Shard {
    records: Mutex<Records>,
    pub(super) changed: Notify,
}

impl Shard {
    /// What a waiter for the record tells a change by.
    pub(super) fn seen(&self, id: RecordId) -> Option<(Fence, bool)> {
        let records = self.lock();
        let record = &records.get(id)?.record;
        Some((record.fence, matches!(record.state, State::Reserved { .. })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// What is over, outcomes that are gone, and reservations whose lease ended so long ago.
    Over(Duration),
    /// Every reservation whose lease has ended, unless it is held until somebody decides.
    Lapsed,
}

/// The records, with the moments at which something about them changes.
#[derive(Debug, Default)]
pub(super) struct Records {
    all: HashMap<RecordId, Stored>,
    bytes: usize,
    /// The next end of each record's, and ends that it had before: those are told by looking.
    ends: BinaryHeap<Reverse<(Moment, RecordId)>>,
    /// The ends of leases, which count only where room is needed.
    leases: BinaryHeap<Reverse<(Moment, RecordId)>>,
}

/// What an entry takes besides its texts and its outcome, by and large.
const OVERHEAD: usize = size_of::<RecordId>() * 2 + size_of::<Stored>() + 32;

fn weight(stored: &Stored) -> usize {
    let outcome = match &stored.record.state {
        State::Completed { outcome, .. } => outcome.len(),
        _ => 0,
    };
    let key_text = stored.key_text.as_ref().map_or(0, String::len);
    OVERHEAD + stored.scope.len() + key_text + outcome
}

/// When a lapsed reservation is no longer remembered.
pub(super) fn forgotten_at(record: &Record, abandoned_for: Duration) -> Option<Moment> {
    match record.state {
        State::Reserved {
            lease_until: Some(until),
            held: false,
            ..
        } => Some(until.after(abandoned_for)),
        _ => None,
    }
}

impl Records {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, id: RecordId) -> Option<&Stored> {
        self.all.get(&id)
    }

    pub(super) fn insert(&mut self, id: RecordId, stored: Stored) {
        self.remove(id);
        self.bytes += weight(&stored);
        let (end, reserved) = (
            next_end(&stored.record),
            matches!(stored.record.state, State::Reserved { .. }),
        );
        self.all.insert(id, stored);
        if let Some(end) = end {
            self.note_end(id, end, reserved);
        }
    }

    pub(super) fn remove(&mut self, id: RecordId) {
        if let Some(stored) = self.all.remove(&id) {
            self.bytes -= weight(&stored);
        }
    }

    pub(super) fn change(&mut self, id: RecordId, change: impl FnOnce(&mut Stored)) {
        if let Some(mut stored) = self.all.remove(&id) {
            self.bytes -= weight(&stored);
            change(&mut stored);
            self.insert(id, stored);
        }
    }

    fn note_end(&mut self, id: RecordId, end: Moment, reserved: bool) {
        let Self {
            all, ends, leases, ..
        } = self;
        let heap = if reserved { leases } else { ends };
        heap.push(Reverse((end, id)));
        // Renewals leave ends behind that are none any more.
        if heap.len() > 2 * all.len() + 64 {
            heap.retain(|Reverse((end, id))| {
                let stored = all.get(id);
                stored.and_then(|stored| next_end(&stored.record)) == Some(*end)
            });
        }
    }

    /// Drops at most `limit` records, or outcomes of records, that are due; says of how many. Looks at
    /// those alone.
    pub(super) fn drop_due(&mut self, now: Moment, due: Due, limit: usize) -> usize {
        let mut done = 0;
        if due != Due::Lapsed {
            while done < limit
                && let Some(Reverse((end, id))) = self.ends.peek().copied()
                && end <= now
            {
                self.ends.pop();
                done += usize::from(self.drop_over(id, now));
            }
        }
        let remembered = match due {
            Due::Over(abandoned_for) => abandoned_for,
            Due::Lapsed => Duration::ZERO,
        };
        while done < limit
            && let Some(Reverse((end, id))) = self.leases.peek().copied()
            && end.after(remembered) <= now
        {
            self.leases.pop();
            let lapsed = |stored: &Stored| {
                forgotten_at(&stored.record, remembered).is_some_and(|at| at <= now)
            };
            if self.get(id).is_some_and(lapsed) {
                self.remove(id);
                done += 1;
            }
        }
        done
    }

    /// Drops the record if it is over, or its outcome if that is gone.
    fn drop_over(&mut self, id: RecordId, now: Moment) -> bool {
        let Some(stored) = self.get(id) else {
            return false;
        };
        if !stored.record.is_outcome_gone(now) {
            return false;
        }
        let was_buried = matches!(stored.record.state, State::Tombstone { .. });
        match stored.record.clone().as_of(now) {
            None => self.remove(id),
            Some(_) if was_buried => return false,
            Some(record) => self.change(id, |stored| stored.record = record),
        }
        true
    }
}

/// The end that stands for the record in one of the heaps.
fn next_end(record: &Record) -> Option<Moment> {
    match &record.state {
        State::Reserved { lease_until, .. } => *lease_until,
        State::Completed { keep_until, .. } => *keep_until,
        State::Tombstone { until } => *until,
    }
}
