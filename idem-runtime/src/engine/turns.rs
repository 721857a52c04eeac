use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::timeout;

use super::backoff::Backoff;
use crate::key::RecordId;
use crate::store::Store;

/// How often a hint may turn out to be none before hints are no longer listened to.
const HINTS: u32 = 16;

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// When to ask again for a record that somebody else holds: after growing pauses, or when the store
/// hints at a change. A hint is only a reason to ask: whose turn it is, the store decides.
pub(crate) struct Turns<'s, S: Store> {
    store: &'s S,
    id: RecordId,
    backoff: Backoff,
    hints: u32,
    changed: Option<Pin<Box<dyn Future<Output = ()> + Send + 's>>>,
}

impl<'s, S: Store> Turns<'s, S> {
    /// Without a budget nothing is waited for.
    pub(crate) fn new(store: &'s S, id: RecordId, budget: Option<Duration>) -> Self {
        Self {
            store,
            id,
            backoff: Backoff::new(budget, Duration::from_millis(5), Duration::from_millis(250)),
            hints: 0,
            changed: None,
        }
    }

    /// Waits until it is time to ask again of a record that is free in so long, if that is known.
    /// `false`: the budget is used up.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn pause(&mut self, free_in: Option<Duration>) -> bool {
        let Some(pause) = self.backoff.next() else {
            return false;
        };
        let pause = free_in.map_or(pause, |free_in| pause.min(free_in.max(SHORTEST_PAUSE)));
        match self.changed.take() {
            // Listening begins before asking, so that a change in between is not missed. The first
            // question is asked without: most calls are in nobody's way.
            None if self.hints < HINTS => self.listen(),
            None => tokio::time::sleep(pause).await,
            Some(change) => {
                if timeout(pause, change).await.is_ok() {
                    self.hints += 1;
                }
                if self.hints < HINTS {
                    self.listen();
                }
            }
        }
        true
    }

    fn listen(&mut self) {
        self.changed = Some(Box::pin(self.store.changed(self.id)));
    }
}
