//! The words that cases are written in.

use std::fmt::Debug;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Barrier;

use super::{Harness, next};
use crate::error::Error;
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;
use crate::protocol::Fence;
use crate::retention::Retention;
use crate::store::{Held, Request, Reservation, Reserved, Store, Stored};

/// A law of the suite.
#[track_caller]
pub(super) fn law(holds: bool, law: &str, meaning: &str, got: &dyn Debug) {
    assert!(
        holds,
        "broken law: {law}\n  what it means: {meaning}\n  the store answered: {got:?}"
    );
}

pub(super) const HOUR: Duration = Duration::from_secs(3600);

#[track_caller]
pub(super) fn done<T>(answer: Result<T, Error>) -> T {
    match answer {
        Ok(answer) => answer,
        Err(error) => panic!(
            "broken law: a step fails only when the store cannot be used\n  \
             what it means: callers are refused, or take a done step for an unknown one\n  \
             the store answered: {error:?}"
        ),
    }
}

pub(super) fn keep(time: Duration) -> Retention {
    done(Retention::new(time))
}

pub(super) fn payload(number: u8) -> Fingerprint {
    let mut bytes = [number; 17];
    // Fingerprints of other versions are not compared.
    bytes[0] = 1;
    Fingerprint::from_bytes(bytes)
}

impl<S: Store> Harness<S> {
    /// The id of a record that no case has used.
    pub(super) fn fresh(&self) -> RecordId {
        let key = next(&self.ids).to_string();
        RecordId::new(self.store.namespace(), "conformance", &[], &key)
    }

    /// A request of a new owner.
    pub(super) fn request(&self, id: RecordId) -> Request<'static> {
        Request::new(id, payload(1), self.lease())
    }

    pub(super) async fn reserve(&self, request: &Request<'_>) -> Reserved {
        done(self.store.reserve(request).await)
    }

    /// A new owner's reservation of a record that must be free.
    pub(super) async fn take(&self, id: RecordId, why: &str, meaning: &str) -> Reservation {
        self.take_as(self.request(id), why, meaning).await
    }

    pub(super) async fn take_as(
        &self,
        request: Request<'_>,
        why: &str,
        meaning: &str,
    ) -> Reservation {
        match self.reserve(&request).await {
            Reserved::Granted(reservation) => {
                let ours = reservation.id == request.id
                    && reservation.owner == request.owner
                    && reservation.fingerprint == request.fingerprint;
                law(
                    ours,
                    "a reservation is the request's own",
                    "later steps would be asked in another owner's name",
                    &reservation,
                );
                reservation
            }
            other => {
                law(false, why, meaning, &other);
                unreachable!()
            }
        }
    }

    pub(super) async fn complete(&self, held: &Reservation, outcome: &[u8]) -> Held {
        self.complete_for(held, outcome, keep(HOUR)).await
    }

    pub(super) async fn complete_for(
        &self,
        held: &Reservation,
        outcome: &[u8],
        retention: Retention,
    ) -> Held {
        let outcome = Bytes::copy_from_slice(outcome);
        done(self.store.complete(held, outcome, retention).await)
    }

    /// A record that is completed.
    pub(super) async fn completed(&self, id: RecordId, outcome: &[u8], kept: Retention) -> Fence {
        let held = self.take(id, FREE, FREE_MEANS).await;
        let completed = self.complete_for(&held, outcome, kept).await;
        law(
            completed == Held::Yes,
            HOLDER_COMPLETES,
            HOLDER_COMPLETES_MEANS,
            &completed,
        );
        held.fence
    }

    pub(super) async fn release(&self, held: &Reservation) -> Held {
        done(self.store.release(held).await)
    }

    pub(super) async fn renew(&self, held: &Reservation) -> Held {
        done(self.store.renew(held, self.lease()).await)
    }

    pub(super) async fn lookup(&self, id: RecordId) -> Option<Stored> {
        done(self.store.lookup(id).await)
    }

    pub(super) async fn forget(&self, id: RecordId) -> bool {
        done(self.store.forget(id).await)
    }

    pub(super) async fn purge(&self, limit: usize) -> usize {
        done(self.store.purge(limit).await)
    }
}

pub(super) const FREE: &str = "a record that is absent, released or over can be reserved";
pub(super) const FREE_MEANS: &str = "calls are refused although nothing is in their way";
pub(super) const HOLDER_COMPLETES: &str = "the holder of a live reservation can complete it";
pub(super) const HOLDER_COMPLETES_MEANS: &str = "effects are done and their outcomes not recorded";

/// Runs the same work in `count` tasks that start together.
pub(super) async fn together<T, F>(count: usize, work: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let barrier = Arc::new(Barrier::new(count));
    let tasks: Vec<_> = (0..count)
        .map(|n| {
            let (barrier, work) = (Arc::clone(&barrier), work(n));
            tokio::spawn(async move {
                barrier.wait().await;
                work.await
            })
        })
        .collect();
    let mut results = Vec::with_capacity(count);
    for task in tasks {
        match task.await {
            Ok(result) => results.push(result),
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(ended) => panic!("a task did not end: {ended}"),
            },
        }
    }
    results
}

/// Polls `work` at most `polls` times and drops it.
pub(super) async fn cut<F: Future>(polls: usize, work: F) -> Option<F::Output> {
    Cut {
        work: pin!(work),
        left: polls,
    }
    .await
}

struct Cut<'a, F> {
    work: Pin<&'a mut F>,
    left: usize,
}

impl<F: Future> Future for Cut<'_, F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        match self.work.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}
