use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tokio::sync::oneshot;

use super::{LockError, RunError};
use crate::engine::{Holds, TermWatch, within};
use crate::error::{Effect, Error, ErrorKind};
use crate::key::RecordId;
use crate::protocol::Fence;

/// Asks for the lock to be given back, and where to say how that went.
pub(super) type GiveBack = oneshot::Sender<Result<(), LockError>>;

/// A lock that is held.
///
/// A task of its own keeps it, and ends with this guard. Dropped, by a panic as well, it is given
/// back in the background, or held until its lease ends, as its lock says. When the runtime ends
/// the task ends with it, and the lock is free when its lease is over.
///
/// **A lock is held by time, and time is no proof.** A process that stands still past its lease goes
/// on afterwards, believing. Look at [`is_lost`](Self::is_lost) before a step that cannot be taken
/// back, and write under the [`fence`](Self::fence), so that the resource refuses who is late.
#[must_use = "a lock whose guard is dropped is given back"]
pub struct LockGuard {
    pub(super) id: RecordId,
    pub(super) fence: Fence,
    pub(super) term: TermWatch,
    pub(super) keeper: Option<oneshot::Sender<GiveBack>>,
}

impl LockGuard {
    /// The fencing number: higher than that of every holder before, of this lock in this store.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Whether the lock is lost, or may be. Once lost it stays so.
    ///
    /// It counts on this process's clock from the moment the last request that extended the lock was
    /// *sent*, so it says so at the latest when others may have the lock. A machine that sleeps
    /// does not count its sleep.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.term.is_over()
    }

    /// Ends when the lock is lost; never while it is held.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        self.term.clone().over()
    }

    /// Gives the lock back.
    ///
    /// `Ok` is the store's own word that nobody else has had it since it was acquired.
    ///
    /// # Errors
    /// [`LockError::Lost`]: it was no longer held, and somebody else may have had it.
    /// [`LockError::Failed`]: the store could not be asked; the lock ends with its lease or session.
    ///
    /// # Cancel safety
    /// It is given back in the background.
    pub async fn release(mut self) -> Result<(), LockError> {
        let (give_back, answer) = oneshot::channel();
        let keeper = self.keeper.take();
        if keeper.is_none_or(|keeper| keeper.send(give_back).is_err()) {
            return Err(gone());
        }
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Runs `body` with the fencing number, and gives the lock back.
    ///
    /// When the lock is lost the body is not polled again: it is dropped at the await where it is.
    /// Inside, [`fence`](crate::engine::fence) tells the number too, and to take the same lock again
    /// is refused.
    ///
    /// # Errors
    /// [`RunError::Lost`], with the body's output if it came to its end.
    ///
    /// # Cancel safety
    /// The body is dropped, and the guard with it.
    pub async fn run<T, F>(self, body: impl FnOnce(Fence) -> F) -> Result<T, RunError<T>>
    where
        F: Future<Output = T>,
    {
        let ended = {
            let mut body = pin!(within(Holds::Leased(self.id, self.fence), body(self.fence)));
            let mut lost = pin!(self.lost());
            poll_fn(|context| {
                // Asked of the clock, since a body that blocks keeps its own timers from firing.
                if self.is_lost() {
                    return Poll::Ready(None);
                }
                if let Poll::Ready(output) = body.as_mut().poll(context) {
                    return Poll::Ready(Some(output));
                }
                lost.as_mut().poll(context).map(|()| None)
            })
            .await
        };
        let Some(output) = ended else {
            return Err(RunError::Lost { output: None });
        };
        let in_time = !self.is_lost();
        match self.release().await {
            Ok(()) => Ok(output),
            // The body has ended within its lease, whatever became of the request.
            Err(LockError::Failed(_)) if in_time => Ok(output),
            Err(_) => Err(RunError::Lost {
                output: Some(output),
            }),
        }
    }
}

/// The task that kept the lock is gone, and its runtime with it.
fn gone() -> LockError {
    let error = Error::new(ErrorKind::StoreUnavailable).detail(
        "the runtime that kept the lock has ended; the lock ends with its lease or session",
    );
    LockError::Failed(error.effect_is(Effect::Unknown))
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("id", &self.id)
            .field("fence", &self.fence)
            .field("is_lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}
