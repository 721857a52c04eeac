//! One fault that is to happen once, and the test's handle on it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use super::Direction;

/// What happens to a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is cut on both sides before the server gets it: it never runs.
    CutBefore,
    /// The server has run it and answered, then the connection is cut on both sides: the client
    /// never learns.
    CutAnswer,
    /// It is kept back until [`Armed::release`].
    HoldBefore,
    /// The server has run it; its answer is kept back until [`Armed::release`].
    HoldAnswer,
}

impl Fault {
    pub(super) fn concerns_answer(self) -> bool {
        matches!(self, Self::CutAnswer | Self::HoldAnswer)
    }
}

/// How much may pass before a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// So many bytes; the cut may fall into the middle of a message.
    Bytes(usize),
    /// So many messages of the protocol.
    Frames(usize),
}

#[derive(Debug)]
pub(super) enum Trigger {
    Pattern(Vec<u8>),
    Bytes(Direction),
    Frames(Direction),
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// A statement or the last byte was met: this plan concerns no other.
    met: bool,
    fired: bool,
    released: bool,
    disarmed: bool,
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) trigger: Trigger,
    pub(super) fault: Fault,
    left: AtomicUsize,
    state: watch::Sender<State>,
}

impl Plan {
    pub(super) fn new(trigger: Trigger, left: usize, fault: Fault) -> Self {
        Self {
            trigger,
            fault,
            left: AtomicUsize::new(left),
            state: watch::Sender::default(),
        }
    }

    /// How much may still pass.
    pub(super) fn left(&self) -> usize {
        self.left.load(Ordering::SeqCst)
    }

    /// Counts what passes, and tells whether that used up what was left; it does so once.
    pub(super) fn meets(&self, amount: usize) -> bool {
        if self.state.borrow().met {
            return false;
        }
        let left = self.left();
        self.left
            .store(left.saturating_sub(amount), Ordering::SeqCst);
        let met = amount >= left;
        self.state.send_modify(|state| state.met = met);
        met
    }

    pub(super) fn fire(&self) {
        self.state.send_modify(|state| state.fired = true);
    }

    pub(super) fn disarm(&self) {
        self.state.send_modify(|state| state.disarmed = true);
    }

    pub(super) fn is_disarmed(&self) -> bool {
        self.state.borrow().disarmed
    }

    /// Waits until the test lets go of what is held.
    pub(super) async fn released(&self) {
        let mut state = self.state.subscribe();
        state
            .wait_for(|state| state.released || state.disarmed)
            .await
            .ok();
    }
}

/// A fault that is armed on a proxy, or has happened. Dropping this does not disarm it.
#[derive(Clone, Debug)]
#[must_use = "a test that does not ask whether its fault happened may have tested nothing"]
pub struct Armed {
    plan: Arc<Plan>,
}

impl Armed {
    pub(super) fn new(plan: Arc<Plan>) -> Self {
        Self { plan }
    }

    /// Whether it has happened. For a fault of the answer that means that the server has answered.
    #[must_use]
    pub fn fired(&self) -> bool {
        self.plan.state.borrow().fired
    }

    /// Waits until it has happened.
    ///
    /// # Panics
    /// When that takes longer than thirty seconds.
    pub async fn wait(&self) {
        let mut state = self.plan.state.subscribe();
        tokio::time::timeout(Duration::from_secs(30), state.wait_for(|state| state.fired))
            .await
            .expect("the armed fault did not happen within thirty seconds")
            .ok();
    }

    /// Lets go what this fault holds back, or what it would hold back later.
    pub fn release(&self) {
        self.plan.state.send_modify(|state| state.released = true);
    }
}
