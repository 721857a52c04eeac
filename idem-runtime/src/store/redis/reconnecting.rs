//! A connection to one server that is made again when it breaks, falls silent, or turns out to be
//! to a server that is no longer the master.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::time::Instant;

use super::link::moved_away;

/// A request that was waited for less long says little of the connection: a front waits for 20 ms, and
/// what it shares a connection with needs that connection.
const SILENCE: Duration = Duration::from_millis(100);
/// So many of them in a row do say something.
const SHORT_SILENCES: u32 = 5;
/// Every request has a deadline of the store's own: the client's must not cut it short.
const NO_TIMEOUT: Duration = Duration::from_secs(3600);

type Dialled = Pin<Box<dyn Future<Output = RedisResult<MultiplexedConnection>> + Send>>;
type Dial = Box<dyn Fn() -> Dialled + Send + Sync>;

/// The connection and how another one is made.
pub(super) struct Reconnecting {
    dial: Dial,
    /// One call dials, the others wait for it.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    /// Requests in a row that were given up after a short wait.
    silences: AtomicU32,
}

#[derive(Default)]
struct State {
    current: Option<MultiplexedConnection>,
    /// How many connections were made: tells a call whether the current one is that which failed.
    made: u64,
}

impl Reconnecting {
    pub(super) fn new<F>(dial: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = RedisResult<MultiplexedConnection>> + Send + 'static,
    {
        Self {
            dial: Box::new(move || Box::pin(dial())),
            turn: tokio::sync::Mutex::new(()),
            state: Mutex::default(),
            silences: AtomicU32::new(0),
        }
    }

    /// Connects, so that a wrong address is known at once.
    pub(super) async fn connect(&self, deadline: Instant) -> RedisResult<()> {
        self.connection(deadline).await.map(|_| ())
    }

    pub(super) async fn send(&self, command: &Cmd, deadline: Instant) -> RedisResult<Value> {
        let (mut connection, made) = self.connection(deadline).await?;
        let sent_at = Instant::now();
        let answer = within(deadline, connection.send_packed_command(command))
            .await
            .and_then(Value::extract_error);
        self.judge(made, sent_at, answer.as_ref().err());
        answer
    }

    pub(super) async fn send_all(
        &self,
        commands: &Pipeline,
        count: usize,
        deadline: Instant,
    ) -> RedisResult<Vec<Value>> {
        let (mut connection, made) = self.connection(deadline).await?;
        let sent_at = Instant::now();
        let sent = connection.send_packed_commands(commands, 0, count);
        let answers = within(deadline, sent).await;
        self.judge(made, sent_at, answers.as_ref().err());
        answers
    }

    /// The current connection and its number.
    ///
    /// # Cancel safety
    /// A call that is dropped while it dials leaves it to the next one.
    async fn connection(&self, deadline: Instant) -> RedisResult<(MultiplexedConnection, u64)> {
        match self.current() {
            Some(current) => Ok(current),
            None => within(deadline, self.another()).await,
        }
    }

    async fn another(&self) -> RedisResult<(MultiplexedConnection, u64)> {
        let _turn = self.turn.lock().await;
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let mut connection = (self.dial)().await?;
        connection.set_response_timeout(NO_TIMEOUT);
        let mut state = self.state();
        state.made += 1;
        state.current = Some(connection.clone());
        Ok((connection, state.made))
    }

    fn current(&self) -> Option<(MultiplexedConnection, u64)> {
        let state = self.state();
        let current = state.current.clone()?;
        Some((current, state.made))
    }

    /// Gives a connection up that no longer serves. Calls under way on it keep it until they end.
    fn judge(&self, made: u64, sent_at: Instant, error: Option<&RedisError>) {
        let Some(error) = error else {
            if self.silences.load(Ordering::Relaxed) != 0 {
                self.silences.store(0, Ordering::Relaxed);
            }
            return;
        };
        let gone = if error.is_timeout() {
            sent_at.elapsed() >= SILENCE
                || self.silences.fetch_add(1, Ordering::Relaxed) + 1 >= SHORT_SILENCES
        } else {
            error.is_unrecoverable_error() || moved_away(error)
        };
        if gone {
            self.silences.store(0, Ordering::Relaxed);
            let mut state = self.state();
            if state.made == made {
                state.current = None;
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a request at `deadline`. Whether the server carries it out afterwards is not known.
pub(super) async fn within<T>(
    deadline: Instant,
    request: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    tokio::time::timeout_at(deadline, request)
        .await
        .unwrap_or_else(|_| {
            let silent = io::Error::new(io::ErrorKind::TimedOut, "no answer within the limit");
            Err(silent.into())
        })
}

impl fmt::Debug for Reconnecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reconnecting")
    }
}
