//! What goes wrong with a step, a saga, or its definition.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use super::state::Cause;
use crate::error::{Effect, Error, ErrorKind, Retry};
use crate::retry::Retryable as _;

type Source = Box<dyn StdError + Send + Sync + 'static>;

/// Why a step, or a compensation, did not succeed, and what is to become of the saga.
///
/// Which it is, is a decision of the step: no conversion makes it for an error of the business. Only
/// [`sqlx::Error`] and [`Error`](crate::Error) convert, to an attempt that is repeated.
#[derive(Debug)]
#[must_use = "a step that failed says so by returning its error"]
pub struct StepError {
    pub(super) kind: StepErrorKind,
    pub(super) cause: Cause,
    source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepErrorKind {
    Refused,
    Unknown,
    Retry,
    /// No attempt helps before somebody has done something.
    Stuck,
}

/// What is said of an attempt of which nothing else is known.
pub(super) const INTERRUPTED: &str = "its process was gone before it came to its end";

impl StepError {
    /// It is refused for good, and **had no effect**: the steps before it are compensated, this one
    /// is not (unless an earlier attempt of it ended unknown).
    ///
    /// In a compensation: it cannot be done; the saga is stuck and needs a person.
    pub fn refused(error: impl Into<Source>) -> Self {
        Self::new(StepErrorKind::Refused, error)
    }

    /// It is given up, and nobody knows **whether it had its effect**: it is compensated too, with
    /// [`Undo::Unknown`](super::Undo::Unknown). In a transaction the same as
    /// [`refused`](Self::refused): what is rolled back had no effect.
    ///
    /// In a compensation the same as [`retry`](Self::retry).
    pub fn unknown(error: impl Into<Source>) -> Self {
        Self::new(StepErrorKind::Unknown, error)
    }

    /// It may succeed when it is tried again, within [`Retries`](super::Retries). Whether this
    /// attempt had its effect is unknown.
    pub fn retry(error: impl Into<Source>) -> Self {
        Self::new(StepErrorKind::Retry, error)
    }

    /// Of a question: that it is refused decides nothing.
    pub(super) fn undecided(self) -> Self {
        let kind = match self.kind {
            StepErrorKind::Stuck => StepErrorKind::Stuck,
            _ => StepErrorKind::Retry,
        };
        Self { kind, ..self }
    }

    pub(super) fn stuck(cause: Cause, error: impl Into<Source>) -> Self {
        Self {
            cause,
            ..Self::new(StepErrorKind::Stuck, error)
        }
    }

    pub(super) fn timed_out(timeout: Duration) -> Self {
        Self {
            cause: Cause::TimedOut,
            ..Self::retry(format!("it took longer than its time-out of {timeout:?}"))
        }
    }

    /// Whether the database gave the step's transaction up: nothing of it remains, and it may succeed
    /// at once.
    pub(super) fn gave_the_transaction_up(&self) -> bool {
        self.kind == StepErrorKind::Retry && self.source.calls_for_retry()
    }

    /// Whether the step had its effect. In a transaction that is rolled back with it there was none.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self.kind {
            StepErrorKind::Refused => Effect::None,
            StepErrorKind::Unknown | StepErrorKind::Retry | StepErrorKind::Stuck => Effect::Unknown,
        }
    }

    /// Whether the saga tries it again by itself.
    #[must_use]
    pub fn retry_advice(&self) -> Retry {
        match self.kind {
            StepErrorKind::Retry => Retry::Later(None),
            StepErrorKind::Refused | StepErrorKind::Unknown | StepErrorKind::Stuck => Retry::Never,
        }
    }

    fn new(kind: StepErrorKind, error: impl Into<Source>) -> Self {
        Self {
            kind,
            cause: Cause::AttemptFailed,
            source: error.into(),
        }
    }

    pub(super) fn panicked(payload: &(dyn std::any::Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self::retry(format!("it panicked: {}", text.unwrap_or("…")))
    }

    /// As it is kept for people: the error with its causes.
    pub(super) fn text(&self) -> String {
        let mut text = words(self.source.as_ref());
        let mut cause = self.source.source();
        while let Some(error) = cause {
            let next = words(error);
            // Many errors show their cause themselves.
            if !text.contains(&next) {
                text.push_str(": ");
                text.push_str(&next);
            }
            cause = error.source();
        }
        kept_text(&text)
    }
}

/// An error of the framework also says what it means for the effect of a call: here the saga says it.
fn words(error: &(dyn StdError + 'static)) -> String {
    let ours = error.downcast_ref::<Error>();
    ours.map_or_else(|| error.to_string(), Error::words)
}

/// A text as it is kept for people: Postgres takes no NUL, and nobody reads a book.
pub(super) fn kept_text(text: &str) -> String {
    const MOST: usize = 4000;
    let mut text = text.replace('\0', "\u{fffd}");
    text.truncate(text.floor_char_boundary(MOST));
    text
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

/// Repeated: nothing remains of the attempt's transaction.
impl From<sqlx::Error> for StepError {
    fn from(error: sqlx::Error) -> Self {
        Self::retry(error)
    }
}

/// Repeated if the error says that this may help; else the saga is stuck until somebody has done
/// something about it (a result that no longer decodes).
impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        let kind = match error.retry() {
            Retry::Never => StepErrorKind::Stuck,
            Retry::Later(_) | Retry::NewTransaction => StepErrorKind::Retry,
        };
        let cause = match error.kind() {
            ErrorKind::OutcomeNotRecordable
            | ErrorKind::OutcomeTooLarge
            | ErrorKind::OutcomeUndecodable
            | ErrorKind::UnknownStep => Cause::ResultUnusable,
            _ => Cause::AttemptFailed,
        };
        Self {
            cause,
            ..Self::new(kind, error)
        }
    }
}

/// Why a saga ended without its effects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// It was cancelled.
    pub cancelled: bool,
    /// The step that failed for good.
    pub step: Option<String>,
    /// That step's error, in words.
    pub error: Option<String>,
}

/// What a saga waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unfinished {
    /// The step that keeps it; `None`: no step was begun.
    pub step: Option<String>,
    /// Whether it is its compensation.
    pub compensation: bool,
    /// How many attempts were made of it.
    pub attempts: u32,
    /// Why it does not go on.
    pub cause: Cause,
    /// The same in words: the last attempt's error.
    pub error: String,
    /// What remains of the saga at this moment.
    pub effect: Effect,
    /// When it is tried again; `None`: not before somebody asks for it.
    pub again_in: Option<Duration>,
}

/// Why a saga has not completed.
#[derive(Debug)]
#[non_exhaustive]
pub enum SagaError {
    /// It was compensated: no effect remains.
    Compensated(Failure),
    /// An attempt failed and is repeated later, by a worker or by the next call with this key.
    Waiting(Unfinished),
    /// Attempts no longer help. A person looks at it, then calls
    /// [`Saga::retry_stuck`](super::Saga::retry_stuck),
    /// [`Saga::resolve_undone`](super::Saga::resolve_undone) or [`Saga::cancel`](super::Saga::cancel).
    Stuck(Unfinished),
    /// It was begun under another list of steps; this call has run nothing.
    #[non_exhaustive]
    StepsChanged {
        /// What remains of the saga at this moment.
        effect: Effect,
        /// The list it was begun under.
        stored: Vec<String>,
        /// The list of this build.
        current: Vec<String>,
    },
    /// It has completed, and is not cancelled any more.
    Completed,
    /// The input cannot be stored and read back as the same value; nothing was recorded or run.
    #[non_exhaustive]
    InputNotRecordable {
        /// What is wrong with it.
        error: String,
    },
    /// No saga of this definition has this id.
    NotFound,
    /// An error of the framework: in progress, another input, a lease that was lost, a database that
    /// cannot be used.
    Idem(Error),
}

impl SagaError {
    /// What this error means for the saga's effects.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::Compensated(_) | Self::InputNotRecordable { .. } | Self::NotFound => Effect::None,
            Self::Completed => Effect::Done,
            Self::Waiting(left) | Self::Stuck(left) => left.effect,
            Self::StepsChanged { effect, .. } => *effect,
            Self::Idem(error) => error.effect(),
        }
    }

    /// Whether and how to repeat the call with the same key.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Waiting(left) => Retry::Later(left.again_in),
            Self::Compensated(_)
            | Self::Stuck(_)
            | Self::StepsChanged { .. }
            | Self::Completed
            | Self::InputNotRecordable { .. }
            | Self::NotFound => Retry::Never,
            Self::Idem(error) => error.retry(),
        }
    }

    /// The framework's error, if it is one.
    #[must_use]
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Idem(error) => Some(error.kind()),
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.step, &self.error) {
            (Some(step), Some(error)) => write!(f, "step {step} failed: {error}"),
            _ if self.cancelled => f.write_str("it was cancelled"),
            _ => f.write_str("a step failed"),
        }
    }
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (attempts, error) = (self.attempts, &self.error);
        let Some(step) = &self.step else {
            return f.write_str(error);
        };
        let of = if self.compensation {
            "the compensation of step"
        } else {
            "step"
        };
        match (self.cause, attempts) {
            (Cause::WorkerStopped, _) => write!(f, "{of} {step} is next: {error}"),
            (Cause::EffectUnknown | Cause::CompensationMissing, _) | (_, 0) => {
                write!(f, "{of} {step} cannot be run: {error}")
            }
            _ => write!(f, "{of} {step} failed (attempt {attempts}): {error}"),
        }
    }
}

impl fmt::Display for SagaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compensated(failure) => write!(
                f,
                "the saga was compensated: {failure} (effect: none; a new intent needs a new key)"
            ),
            Self::Waiting(left) => write!(
                f,
                "the saga waits: {left} (effect: {}; it is tried again later, ask with the same key)",
                effect(left.effect)
            ),
            Self::Stuck(left) => write!(
                f,
                "the saga is stuck: {left} (effect: {}; look at it, then retry, resolve or cancel it)",
                effect(left.effect)
            ),
            Self::StepsChanged {
                effect: remains,
                stored,
                current,
            } => write!(
                f,
                "the saga was begun under the steps [{}], this build has [{}] (effect: {}; this call \
                 has run nothing; run a build that has those steps, or accept the list)",
                stored.join(", "),
                current.join(", "),
                effect(*remains)
            ),
            Self::InputNotRecordable { error } => write!(
                f,
                "the input cannot be stored and read back as the same value: {error} (effect: none; \
                 nothing was recorded; change the input's type)"
            ),
            Self::NotFound => {
                f.write_str("no saga of this definition has this id (effect: none; look for it)")
            }
            Self::Completed => f.write_str(
                "the saga has completed (effect: done; undoing it is a new intent with a key of its \
                 own)",
            ),
            Self::Idem(error) => error.fmt(f),
        }
    }
}

impl StdError for SagaError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Idem(error) => error.source(),
            _ => None,
        }
    }
}

impl From<Error> for SagaError {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::None => "none",
        Effect::Done => "done",
        Effect::Unknown => "unknown",
    }
}

/// A definition that makes no sense; nothing was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionError(String);

impl DefinitionError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Always [`Effect::None`].
    #[must_use]
    pub fn effect(&self) -> Effect {
        Effect::None
    }

    /// Always [`Retry::Never`].
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}

impl fmt::Display for DefinitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0;
        write!(
            f,
            "the saga's definition is not valid: {text} (effect: none; correct it)"
        )
    }
}

impl StdError for DefinitionError {}
