//! The task that keeps one lock.

use std::future::Future;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::lane::Turn;
use super::{GiveBack, LockError, LockGuard, OnDrop};
use crate::engine::{AtDeadline, Lost, Renew, StoreLease, Term, no_answer, renew_until_lost};
use crate::error::{Effect, Error};
use crate::key::RecordId;
use crate::protocol::Fence;
use crate::store::{Held, Store};

/// Something that can be held, and given back.
pub(super) trait Holding: Renew + 'static {
    /// Whether others have it when it was not renewed in time. Otherwise that is only when its holder
    /// no longer knows.
    const ENDS: bool;

    fn give_back(&mut self) -> impl Future<Output = Result<Held, Error>> + Send;

    /// It may be somebody else's from now on.
    fn lost(&mut self, how: Lost);
}

impl<S: Store> Holding for StoreLease<S> {
    const ENDS: bool = true;

    async fn give_back(&mut self) -> Result<Held, Error> {
        self.store.release(&self.reservation).await
    }

    fn lost(&mut self, how: Lost) {
        self.warn(how);
    }
}

/// What was acquired.
pub(super) struct Acquired<H> {
    pub(super) holding: H,
    pub(super) id: RecordId,
    pub(super) fence: Fence,
    /// For how long since `sent_at`, unless it is renewed.
    pub(super) lease: Duration,
    pub(super) sent_at: Instant,
    pub(super) on_drop: OnDrop,
}

impl<H: Holding> Acquired<H> {
    /// Keeps it in a task of its own, which holds the turn as long.
    ///
    /// # Errors
    /// The answer came so late that it may be over already.
    pub(super) fn keep(self, turn: Turn) -> Result<LockGuard, LockError> {
        let (term, watch) = Term::until(self.sent_at + self.lease);
        let (keeper, ended) = oneshot::channel();
        let guard = LockGuard {
            id: self.id,
            fence: self.fence,
            term: watch,
            keeper: Some(keeper),
        };
        turn.held(H::ENDS.then_some(&guard.term));
        tokio::spawn(self.until_ended(term, ended, turn));
        if guard.is_lost() {
            return Err(LockError::Failed(no_answer()));
        }
        Ok(guard)
    }

    async fn until_ended(mut self, term: Term, mut ended: oneshot::Receiver<GiveBack>, turn: Turn) {
        let (lease, sent_at) = (self.lease, self.sent_at);
        let (end, next) = (sent_at + lease, sent_at + lease / 3);
        let mut turn = Some(turn);
        let asked = tokio::select! {
            biased;
            asked = &mut ended => Ok(asked),
            lost = renew_until_lost(
                &mut self.holding, lease, end, next, AtDeadline::End(&term),
            ) => Err(lost),
        };
        let asked = match asked {
            Ok(asked) => asked,
            Err(lost) => {
                term.end();
                self.holding.lost(lost);
                // Whoever is next must not wait for somebody who does not know yet.
                turn = None;
                ended.await
            }
        };
        match (asked, self.on_drop) {
            (Ok(answer), _) => {
                let given_back = self.give_back(&term).await;
                drop(turn);
                // Nobody may be listening any more.
                let _ = answer.send(given_back);
            }
            (Err(_), OnDrop::Release) => drop(self.give_back(&term).await),
            (Err(_), OnDrop::Hold) => {}
        }
    }

    /// Tries twice. What cannot be given back ends by itself.
    async fn give_back(&mut self, term: &Term) -> Result<(), LockError> {
        let patience = (self.lease / 3).clamp(Duration::from_secs(1), Duration::from_secs(5));
        let mut failed = None;
        for _ in 0..2 {
            match timeout(patience, self.holding.give_back()).await {
                Ok(Ok(Held::Yes)) => return Ok(()),
                // Nobody else can have had it yet: the first request was done and its answer lost.
                Ok(Ok(Held::No)) if failed.is_some() && !term.is_over() => return Ok(()),
                Ok(Ok(Held::No)) => return Err(LockError::Lost),
                Ok(Err(error)) => failed = Some(error),
                Err(_) => failed = Some(no_answer()),
            }
        }
        let error = failed.unwrap_or_else(no_answer);
        Err(LockError::Failed(error.effect_is(Effect::Unknown)))
    }
}
