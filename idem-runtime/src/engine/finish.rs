use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;

/// A future that is run to its end even when the caller drops it: it then goes on in a task of its
/// own, and what it gives is dropped there.
///
/// Costs an allocation; a task is spawned only if it comes to that.
pub(crate) struct RunToEnd<F: Future + Send + 'static>
where
    F::Output: Send,
{
    future: Option<Pin<Box<F>>>,
    runtime: Handle,
}

/// # Panics
/// Outside a tokio runtime, where no database connection works either.
pub(crate) fn run_to_end<F>(future: F) -> RunToEnd<F>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    RunToEnd {
        future: Some(Box::pin(future)),
        runtime: Handle::current(),
    }
}

impl<F: Future + Send + 'static> Future for RunToEnd<F>
where
    F::Output: Send,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // Polled again after its end, as by no executor: it never wakes.
        let Some(future) = &mut self.future else {
            return Poll::Pending;
        };
        let output = ready!(future.as_mut().poll(cx));
        self.future = None;
        Poll::Ready(output)
    }
}

impl<F: Future + Send + 'static> Drop for RunToEnd<F>
where
    F::Output: Send,
{
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            self.runtime.spawn(async move { drop(future.await) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::run_to_end;

    #[tokio::test]
    async fn a_dropped_future_goes_on() {
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let (done, ended) = (
            Arc::new(AtomicBool::new(false)),
            tokio::sync::oneshot::channel(),
        );
        let future = run_to_end({
            let done = Arc::clone(&done);
            async move {
                let _ = wait.await;
                done.store(true, Ordering::SeqCst);
                let _ = ended.0.send(());
            }
        });
        let poll_once = tokio::time::timeout(std::time::Duration::from_millis(1), future);
        assert!(poll_once.await.is_err());
        assert!(!done.load(Ordering::SeqCst));
        let _ = go.send(());
        assert!(ended.1.await.is_ok());
        assert!(done.load(Ordering::SeqCst));
    }
}
