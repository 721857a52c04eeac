//! Futures that are dropped before they are done.
//!
//! A caller may drop a call at each of its awaits: a timed-out request, a `select!`, a connection
//! that closed. To meet them all:
//!
//! ```ignore
//! for polls in 0.. {
//!     let answer = drop_after(call(), polls).await;
//!     // …check what a dropped call left behind…
//!     if answer.is_some() {
//!         break;
//!     }
//! }
//! ```
//!
//! With real I/O the number of polls differs between two runs of the same call, so that loop meets
//! most points and not each of them every time; with [`drop_after_time`] one adds more.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

/// Polls the future up to `polls` times, each time only after it has been woken, and drops it.
/// Gives its output if it was done by then.
pub async fn drop_after<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    if polls == 0 {
        return None;
    }
    let mut future = pin!(future);
    let mut polled = 0;
    poll_fn(|context| {
        polled += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polled == polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Drops the future when the time is over. Gives its output if it was done by then.
pub async fn drop_after_time<F: Future>(future: F, time: Duration) -> Option<F::Output> {
    tokio::time::timeout(time, future).await.ok()
}

/// How many polls the future took, and its output.
pub async fn count_polls<F: Future>(future: F) -> (usize, F::Output) {
    let mut future = pin!(future);
    let mut polled = 0;
    let output = poll_fn(|context| {
        polled += 1;
        future.as_mut().poll(context)
    })
    .await;
    (polled, output)
}
