use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::dialect::LeaseRow;
use crate::key::RecordId;

/// One question at a time for each record: calls that ask while another one's question is on its way
/// share the next answer. A thousand duplicates take one connection, and not those that the call
/// they wait for needs to renew its lease and to record its outcome.
#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<HashMap<RecordId, Entry>>);

#[derive(Debug, Default)]
struct Entry {
    /// Counted here, under the map's lock: a count of references still has those that are just being
    /// dropped, and two at once would each leave the lane to the other.
    entrants: usize,
    lane: Arc<Lane>,
}

#[derive(Debug, Default)]
struct Lane {
    /// How many questions were begun.
    begun: AtomicU64,
    answer: tokio::sync::Mutex<Answer>,
}

/// The last answer, and which question it is to.
#[derive(Debug, Default)]
pub(super) struct Answer {
    number: u64,
    row: Option<Arc<LeaseRow>>,
}

impl Lanes {
    /// Enters the record's lane; what was asked before this is no answer for who enters now.
    pub(super) fn enter(&self, id: RecordId) -> Entrant<'_> {
        let mut lanes = self.lock();
        let entry = lanes.entry(id).or_default();
        entry.entrants += 1;
        let lane = Arc::clone(&entry.lane);
        Entrant {
            lanes: self,
            id,
            entered: lane.begun.load(Ordering::SeqCst),
            lane,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RecordId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call in a record's lane. The lane goes with its last one.
#[derive(Debug)]
pub(super) struct Entrant<'a> {
    lanes: &'a Lanes,
    id: RecordId,
    lane: Arc<Lane>,
    entered: u64,
}

/// The turn to ask.
#[derive(Debug)]
pub(super) struct Turn<'a>(tokio::sync::MutexGuard<'a, Answer>);

impl Entrant<'_> {
    /// Waits for its turn: with an answer to a question that was begun since it entered, if there is
    /// one.
    pub(super) async fn turn(&self) -> (Turn<'_>, Option<Arc<LeaseRow>>) {
        let answer = self.lane.answer.lock().await;
        let shared = answer.row.clone().filter(|_| answer.number > self.entered);
        (Turn(answer), shared)
    }

    /// Marks the beginning of a question.
    pub(super) fn begin(&self, turn: &mut Turn<'_>) {
        turn.0.number = self.lane.begun.fetch_add(1, Ordering::SeqCst) + 1;
        // Until it is answered, and if it never is, there is nothing to share.
        turn.0.row = None;
    }
}

impl Turn<'_> {
    /// Shares what was read.
    pub(super) fn share(&mut self, row: LeaseRow) -> Arc<LeaseRow> {
        let row = Arc::new(row);
        self.0.row = Some(Arc::clone(&row));
        row
    }
}

impl Drop for Entrant<'_> {
    fn drop(&mut self) {
        let mut lanes = self.lanes.lock();
        if let Some(entry) = lanes.get_mut(&self.id) {
            entry.entrants -= 1;
            if entry.entrants == 0 {
                lanes.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Moment;
    use crate::fingerprint::Fingerprint;
    use crate::protocol::{Fence, Owner, Record, State};

    fn row() -> LeaseRow {
        let owner = Owner::from_bytes([1; 16]);
        let state = State::Reserved {
            owner,
            lease_until: None,
            held: false,
        };
        LeaseRow {
            record: Record {
                fingerprint: Fingerprint::NONE,
                fence: Fence::new(1),
                state,
            },
            owner,
            created_at: Moment::from_millis(0),
            now: Moment::from_millis(0),
            left: None,
        }
    }

    #[tokio::test]
    async fn an_answer_is_shared_with_who_came_before_its_question() {
        let lanes = Lanes::default();
        let id = RecordId::from_bytes([7; 16]);
        let (first, second) = (lanes.enter(id), lanes.enter(id));
        let (mut turn, shared) = first.turn().await;
        assert!(shared.is_none());
        first.begin(&mut turn);
        let late = lanes.enter(id);
        let _ = turn.share(row());
        drop(turn);
        assert!(second.turn().await.1.is_some());
        assert!(late.turn().await.1.is_none(), "asked before it came");
        drop((first, second, late));
        assert!(lanes.lock().is_empty());
    }

    #[tokio::test]
    async fn a_question_that_is_dropped_shares_nothing() {
        let lanes = Lanes::default();
        let id = RecordId::from_bytes([7; 16]);
        let (first, second) = (lanes.enter(id), lanes.enter(id));
        let (mut turn, _) = first.turn().await;
        let _ = turn.share(row());
        first.begin(&mut turn);
        drop(turn);
        drop(first);
        assert!(second.turn().await.1.is_none());
    }

    #[test]
    fn a_lane_goes_with_the_last_of_those_that_leave_together() {
        let lanes = Lanes::default();
        let id = RecordId::from_bytes([7; 16]);
        for _ in 0..2000 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| drop(lanes.enter(id)));
                }
            });
        }
        assert!(lanes.lock().is_empty());
    }
}
