//! The inside of a function under test: counted, and stopped midway when the test wants it.
//!
//! ```ignore
//! let body = Body::held();
//! let first = tokio::spawn(pay(pool.clone(), 7, body.clone())); // its body calls `body.run().await`
//! body.started(1).await; // now the first call is in its body
//! // …a second call meets a running one…
//! body.release();
//! assert_eq!(body.runs(), 1);
//! ```

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

/// What the bodies of a test share. It does not serialise, so that it is no part of a payload.
#[derive(Clone, Debug, Default)]
pub struct Body(Arc<State>);

#[derive(Debug, Default)]
struct State {
    runs: watch::Sender<usize>,
    held: watch::Sender<bool>,
}

impl Body {
    /// One that runs through.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One that stops in the middle until it is [released](Self::release).
    #[must_use]
    pub fn held() -> Self {
        let body = Self::default();
        body.hold();
        body
    }

    /// Called by the body. Gives this run's number, from 1.
    pub async fn run(&self) -> usize {
        let mut number = 0;
        self.0.runs.send_modify(|runs| {
            *runs += 1;
            number = *runs;
        });
        // Pending once in any case: a call can always be dropped inside its body.
        tokio::task::yield_now().await;
        let mut held = self.0.held.subscribe();
        held.wait_for(|held| !held).await.ok();
        number
    }

    /// Runs stop from now on.
    pub fn hold(&self) {
        self.0.held.send_replace(true);
    }

    /// Lets all go on.
    pub fn release(&self) {
        self.0.held.send_replace(false);
    }

    /// How many runs have begun.
    #[must_use]
    pub fn runs(&self) -> usize {
        *self.0.runs.borrow()
    }

    /// Waits until so many runs have begun.
    ///
    /// # Panics
    /// When that takes longer than thirty seconds.
    pub async fn started(&self, runs: usize) {
        let mut begun = self.0.runs.subscribe();
        let enough = begun.wait_for(|begun| *begun >= runs);
        if tokio::time::timeout(Duration::from_secs(30), enough)
            .await
            .is_err()
        {
            panic!("{} runs have begun, not {runs}", self.runs());
        }
    }
}
