use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::engine::TermWatch;
use crate::key::RecordId;

/// Who wants which lock in this process. For each lock one asks the store; the others stand in line,
/// in the order in which they came, and cost nothing.
///
/// The line is about fairness and load only. Whose the lock is, the store decides.
#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    lanes: HashMap<RecordId, Lane>,
    /// The lanes that nobody stood in at these moments, in their order. Whoever comes back at once goes
    /// on with the reign, so that one who takes a lock again and again is no better than a line.
    left: VecDeque<(Instant, RecordId)>,
}

#[derive(Debug)]
struct Lane {
    /// How many stand in it, whoever has the turn included.
    entrants: usize,
    /// Since when nobody does. After a moment it goes.
    left: Option<Instant>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    turn: Arc<Semaphore>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    free: Free,
    /// Since when the lock has gone from hand to hand in this process alone.
    reign: Option<Instant>,
}

/// How long a lock may go from hand to hand in one process before it is left alone for a moment.
const REIGN: Duration = Duration::from_secs(2);

/// The longest that somebody in another process takes to ask again.
const COURTESY: Duration = Duration::from_millis(250);

/// When the lock is free, as far as is known here.
#[derive(Debug, Default)]
enum Free {
    #[default]
    Unknown,
    /// As the store said.
    At(Instant),
    /// It is held in this process.
    With(TermWatch),
}

/// A place in the line.
#[derive(Debug)]
pub(super) struct Entrant {
    lanes: Arc<Lanes>,
    id: RecordId,
    shared: Arc<Shared>,
}

/// The turn to ask for the lock, and then to hold it.
#[derive(Debug)]
pub(super) struct Turn {
    _permit: OwnedSemaphorePermit,
    entrant: Entrant,
}

impl Lanes {
    /// Stands in line.
    pub(super) fn enter(self: &Arc<Self>, id: RecordId) -> Entrant {
        let mut table = self.lock();
        table.forget_the_left(Instant::now());
        let lane = table.lanes.entry(id).or_insert_with(|| Lane {
            entrants: 0,
            left: None,
            shared: Arc::new(Shared {
                turn: Arc::new(Semaphore::new(1)),
                known: Mutex::default(),
            }),
        });
        lane.entrants += 1;
        lane.left = None;
        Entrant {
            lanes: Arc::clone(self),
            id,
            shared: Arc::clone(&lane.shared),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// In those others had a moment to ask.
    fn forget_the_left(&mut self, now: Instant) {
        while let Some(&(left, id)) = self.left.front()
            && now.saturating_duration_since(left) >= COURTESY
        {
            self.left.pop_front();
            if self
                .lanes
                .get(&id)
                .is_some_and(|lane| lane.left == Some(left))
            {
                self.lanes.remove(&id);
            }
        }
    }

    fn leave(&mut self, id: RecordId) {
        let Some(lane) = self.lanes.get_mut(&id) else {
            return;
        };
        lane.entrants -= 1;
        if lane.entrants > 0 {
            return;
        }
        if lane.shared.known().reign.is_none() {
            self.lanes.remove(&id);
            return;
        }
        let now = Instant::now();
        lane.left = Some(now);
        self.left.push_back((now, id));
    }
}

impl Entrant {
    /// Waits for the turn, at most so long; without a budget it is had now or not at all.
    ///
    /// # Cancel safety
    /// Who is dropped leaves the line.
    pub(super) async fn turn(self, budget: Option<Duration>) -> Result<Turn, Self> {
        let semaphore = Arc::clone(&self.shared.turn);
        let permit = match budget {
            None => semaphore.try_acquire_owned().ok(),
            Some(budget) => timeout(budget, semaphore.acquire_owned())
                .await
                .ok()
                .and_then(Result::ok),
        };
        match permit {
            Some(permit) => Ok(Turn {
                _permit: permit,
                entrant: self,
            }),
            None => Err(self),
        }
    }

    /// The time until the lock is free, if it is known here.
    pub(super) fn free_in(&self) -> Option<Duration> {
        let at = match &self.shared.known().free {
            Free::Unknown => None,
            Free::At(at) => Some(*at),
            Free::With(term) => term.end(),
        };
        at.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

impl Turn {
    /// Lets other processes ask, if the line here has had the lock for long: who is next in line is
    /// always quicker than who asks from time to time.
    ///
    /// # Cancel safety
    /// Whoever is next does it instead.
    pub(super) async fn be_courteous(&self, budget: Option<Duration>) {
        let reign = self.entrant.shared.known().reign;
        if reign.is_some_and(|since| since.elapsed() >= REIGN) {
            let pause = COURTESY.min(budget.unwrap_or_default());
            if pause.is_zero() {
                return;
            }
            tokio::time::sleep(pause).await;
            self.entrant.shared.known().reign = None;
        }
    }

    /// Tells the line that somebody else has the lock, and for how long.
    pub(super) fn held_elsewhere(&self, free_in: Option<Duration>) {
        let at = free_in.and_then(|free_in| Instant::now().checked_add(free_in));
        *self.entrant.shared.known() = Known {
            free: at.map_or(Free::Unknown, Free::At),
            reign: None,
        };
    }

    /// Tells the line that the lock is held here, and for how long, if that has an end.
    pub(super) fn held(&self, term: Option<&TermWatch>) {
        let mut known = self.entrant.shared.known();
        known.free = term.map_or(Free::Unknown, |term| Free::With(term.clone()));
        known.reign.get_or_insert_with(Instant::now);
    }
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.entrant.shared.known().free = Free::Unknown;
    }
}

impl Drop for Entrant {
    fn drop(&mut self) {
        self.lanes.lock().leave(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: RecordId = RecordId::from_bytes([7; 16]);
    const LONG: Option<Duration> = Some(Duration::from_secs(60));

    #[tokio::test]
    async fn turns_come_in_order_and_a_lane_goes_with_its_last_entrant() {
        let lanes = Arc::<Lanes>::default();
        let order = Arc::new(Mutex::new(Vec::new()));
        let first = lanes.enter(ID).turn(LONG).await;
        let tasks: Vec<_> = (0..10)
            .map(|n| {
                let (entrant, order) = (lanes.enter(ID), Arc::clone(&order));
                let mut turn = Box::pin(entrant.turn(LONG));
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                assert!(turn.as_mut().poll(&mut context).is_pending());
                tokio::spawn(async move {
                    let turn = turn.await;
                    assert!(turn.is_ok());
                    order.lock().map(|mut order| order.push(n)).ok();
                })
            })
            .collect();
        drop(first);
        for task in tasks {
            assert!(task.await.is_ok());
        }
        assert_eq!(order.lock().ok().as_deref(), Some(&(0..10).collect()));
        assert!(lanes.lock().lanes.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_the_line_is_not_waited_for() {
        let lanes = Arc::<Lanes>::default();
        let first = lanes.enter(ID).turn(None).await;
        assert!(first.is_ok());
        assert!(lanes.enter(ID).turn(None).await.is_err());
        let mut second = Box::pin(lanes.enter(ID).turn(LONG));
        let third = tokio::spawn(lanes.enter(ID).turn(LONG));
        let poll = timeout(Duration::from_millis(1), &mut second);
        assert!(poll.await.is_err());
        drop(second);
        drop(first);
        let third = third.await;
        assert!(third.is_ok_and(|turn| turn.is_ok()));
        assert!(lanes.lock().lanes.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_that_was_left_goes_after_a_moment() {
        let lanes = Arc::<Lanes>::default();
        let (other, third) = (RecordId::from_bytes([8; 16]), RecordId::from_bytes([9; 16]));
        for _ in 0..3 {
            for id in [ID, other] {
                let turn = lanes.enter(id).turn(None).await;
                assert!(turn.is_ok_and(|turn| {
                    turn.held(None);
                    turn.entrant.shared.known().reign.is_some()
                }));
            }
        }
        assert_eq!(lanes.lock().lanes.len(), 2);
        tokio::time::advance(COURTESY / 2).await;
        let turn = lanes.enter(other).turn(None).await;
        tokio::time::advance(COURTESY).await;
        // Nobody came back to the first; the second is not taken from who stands in it.
        drop(lanes.enter(third));
        assert_eq!(lanes.lock().lanes.len(), 1);
        assert!(lanes.lock().left.is_empty());
        assert!(turn.is_ok_and(|turn| turn.entrant.shared.known().reign.is_some()));
        tokio::time::advance(COURTESY).await;
        drop(lanes.enter(third));
        assert!(lanes.lock().lanes.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_in_vain_knows_when_it_is_free() {
        let lanes = Arc::<Lanes>::default();
        let Ok(turn) = lanes.enter(ID).turn(None).await else {
            unreachable!("nobody else is here");
        };
        turn.held_elsewhere(Some(Duration::from_secs(9)));
        let waited = lanes.enter(ID).turn(Some(Duration::from_secs(4))).await;
        let free_in = waited.err().and_then(|entrant| entrant.free_in());
        assert_eq!(free_in, Some(Duration::from_secs(5)));
    }
}
