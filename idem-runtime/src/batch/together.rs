//! Futures side by side, a bounded number of them.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;

/// Runs the workers to the end of all of them, in this task.
pub(super) async fn together<F: Future<Output = ()>>(workers: impl Iterator<Item = F>) {
    let mut workers: Vec<Pin<Box<F>>> = workers.map(Box::pin).collect();
    poll_fn(|cx| {
        workers.retain_mut(|worker| worker.as_mut().poll(cx).is_pending());
        if workers.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// What a panic carries.
pub(super) type Panic = Box<dyn Any + Send>;

/// Runs the future; a panic of it is handed over instead of going on at once.
pub(super) async fn caught<F: Future>(future: F) -> Result<F::Output, Panic> {
    let mut future = pin!(future);
    // It is not polled again after a panic.
    poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        },
    )
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{caught, together};

    #[tokio::test]
    async fn all_run_to_their_end() {
        let ended = Cell::new(0);
        let worker = |n: usize| {
            let ended = &ended;
            async move {
                for _ in 0..n {
                    tokio::task::yield_now().await;
                }
                ended.set(ended.get() + 1);
            }
        };
        together((0..20).map(worker)).await;
        assert_eq!(ended.get(), 20);
        together(std::iter::empty::<std::future::Ready<()>>()).await;
    }

    #[tokio::test]
    async fn a_panic_is_handed_over() {
        let panic = caught(async {
            tokio::task::yield_now().await;
            std::panic::panic_any(7_u8);
        });
        let panic = panic
            .await
            .err()
            .and_then(|panic| panic.downcast::<u8>().ok());
        assert_eq!(panic.as_deref(), Some(&7));
        assert!(matches!(caught(async { 1 }).await, Ok(1)));
    }
}
