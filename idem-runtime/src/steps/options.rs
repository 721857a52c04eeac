//! How one step is run, where that differs from the other steps of its saga.

use std::time::Duration;

use super::retries::Retries;

/// How long an attempt may take unless a definition says otherwise.
pub const DEFAULT_STEP_TIMEOUT: Duration = Duration::from_secs(300);

/// How one step, and its compensation, is run ([`Steps::configure`](super::Steps::configure)). What is
/// not set is as the definition says.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct StepOptions {
    pub(super) retries: Option<Retries>,
    pub(super) timeout: Option<Duration>,
}

impl StepOptions {
    /// As the definition says.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How often it is tried again.
    #[must_use]
    pub fn retries(mut self, retries: Retries) -> Self {
        self.retries = Some(retries);
        self
    }

    /// How long one attempt may take, a question to the other side included. An attempt that takes
    /// longer is dropped and has failed: that of a transactional step is rolled back, that of an outside
    /// one leaves its effect unknown, and it is tried again as after
    /// [`StepError::retry`](super::StepError::retry).
    ///
    /// On MySQL and MariaDB, whose driver does not survive a statement that is dropped, the transaction
    /// of such an attempt is rolled back when the step comes to its end, and after as much time again
    /// at the latest.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}
