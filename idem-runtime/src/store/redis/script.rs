//! The steps, each one script on one key.

use std::future::Future;
use std::sync::OnceLock;

use ::redis::{Cmd, RedisError, RedisResult, Script, ServerErrorKind, Value};
use tokio::time::Instant;

use super::link::Link;

pub(super) static RESERVE: Step = Step::new(include_str!("lua/reserve.lua"));
pub(super) static COMPLETE: Step = Step::new(include_str!("lua/complete.lua"));
pub(super) static RENEW: Step = Step::new(include_str!("lua/renew.lua"));
pub(super) static RELEASE: Step = Step::new(include_str!("lua/release.lua"));
pub(super) static FORGET: Step = Step::new(include_str!("lua/forget.lua"));
pub(super) static LOOKUP: Step = Step::new(include_str!("lua/lookup.lua"));
pub(super) static TOKEN_ISSUE: Step = Step::new(include_str!("lua/token_issue.lua"));
pub(super) static TOKEN_TAKE: Step = Step::new(include_str!("lua/token_take.lua"));
pub(super) static TOKEN_END: Step = Step::new(include_str!("lua/token_end.lua"));

/// A script and, once it was needed, its digest.
#[derive(Debug)]
pub(super) struct Step {
    text: &'static str,
    digest: OnceLock<String>,
}

impl Step {
    const fn new(text: &'static str) -> Self {
        Self {
            text,
            digest: OnceLock::new(),
        }
    }

    fn digest(&self) -> &str {
        self.digest
            .get_or_init(|| Script::new(self.text).get_hash().to_owned())
    }
}

/// Replicas that must have acknowledged a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replicas {
    pub(super) count: usize,
    pub(super) millis: u64,
}

/// One call of a script.
#[derive(Debug)]
pub(super) struct Invocation<'a> {
    pub(super) step: &'static Step,
    pub(super) key: &'a [u8],
    pub(super) arguments: &'a [&'a [u8]],
}

impl Invocation<'_> {
    /// Runs it.
    pub(super) async fn run(&self, link: &Link, deadline: Instant) -> RedisResult<Value> {
        self.insist(link, |command| link.send(self.key, command, deadline))
            .await
    }

    /// As [`run`](Self::run), and tells how many replicas have it.
    pub(super) async fn run_replicated(
        &self,
        link: &Link,
        replicas: Replicas,
        deadline: Instant,
    ) -> RedisResult<(Value, usize)> {
        let send = |command| {
            let mut wait = ::redis::cmd("WAIT");
            wait.arg(replicas.count).arg(replicas.millis);
            link.send_pair(self.key, command, wait, deadline)
        };
        let (answer, acknowledged) = self.insist(link, send).await?;
        let acknowledged = match acknowledged {
            Value::Int(count) => usize::try_from(count).unwrap_or_default(),
            _ => 0,
        };
        Ok((answer, acknowledged))
    }

    /// Sends it by its digest. A server that does not know it (restarted, promoted, flushed, a new
    /// node of a cluster) is sent the text, which it remembers.
    ///
    /// A connection that broke is replaced and the script sent once more: every script answers its
    /// own repetition as it answered the first time, or that the reservation is not held any longer.
    async fn insist<T, F>(&self, link: &Link, send: impl Fn(Cmd) -> F) -> RedisResult<T>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let answer = match send(self.by_digest()).await {
            Err(error) if link.may_repeat(&error) => send(self.by_digest()).await,
            answer => answer,
        };
        match answer {
            Err(error) if unknown_script(&error) => send(self.by_text()).await,
            answer => answer,
        }
    }

    fn by_digest(&self) -> Cmd {
        self.command("EVALSHA", self.step.digest().as_bytes())
    }

    fn by_text(&self) -> Cmd {
        self.command("EVAL", self.step.text.as_bytes())
    }

    fn command(&self, name: &str, script: &[u8]) -> Cmd {
        let size: usize = self.arguments.iter().map(|argument| argument.len()).sum();
        let mut command = Cmd::with_capacity(
            self.arguments.len() + 4,
            size + self.key.len() + script.len() + 32,
        );
        command.arg(name).arg(script).arg(1).arg(self.key);
        for argument in self.arguments {
            command.arg(*argument);
        }
        command
    }
}

fn unknown_script(error: &RedisError) -> bool {
    error.kind() == ::redis::ErrorKind::Server(ServerErrorKind::NoScript)
}
