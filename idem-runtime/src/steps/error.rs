use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::error::{Effect, Error, ErrorKind, Retry};

type Source = Box<dyn StdError + Send + Sync + 'static>;

/// Why a step, or a compensation, did not succeed, and what is to become of the saga.
///
/// Which it is, is a decision of the step: no conversion makes it for an error of the business. Only
/// [`sqlx::Error`] and [`Error`](crate::Error) convert, to an attempt that is repeated.
#[derive(Debug)]
#[must_use = "a step that failed says so by returning its error"]
pub struct StepError {
    pub(super) kind: StepErrorKind,
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

    pub(super) fn stuck(error: impl Into<Source>) -> Self {
        Self::new(StepErrorKind::Stuck, error)
    }

    fn new(kind: StepErrorKind, error: impl Into<Source>) -> Self {
        Self {
            kind,
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
        let mut text = self.source.to_string();
        let mut cause = self.source.source();
        while let Some(error) = cause {
            let next = error.to_string();
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
        Self::new(kind, error)
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
    /// The step whose last attempt failed.
    pub step: String,
    /// Whether it was its compensation that failed.
    pub compensation: bool,
    /// How many attempts were made.
    pub attempts: u32,
    /// The last attempt's error, in words.
    pub error: String,
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
    /// It was begun under another list of steps; nothing was run.
    #[non_exhaustive]
    StepsChanged {
        /// The list it was begun under.
        stored: Vec<String>,
        /// The list of this build.
        current: Vec<String>,
    },
    /// It has completed, and is not cancelled any more.
    Completed,
    /// An error of the framework: in progress, another input, a lease that was lost, a database that
    /// cannot be used.
    Idem(Error),
}

impl SagaError {
    /// What this error means for the saga's effects.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::Compensated(_) => Effect::None,
            Self::Completed => Effect::Done,
            Self::Waiting(_) | Self::Stuck(_) | Self::StepsChanged { .. } => Effect::Unknown,
            Self::Idem(error) => error.effect(),
        }
    }

    /// Whether and how to repeat the call with the same key.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Waiting(left) => Retry::Later(left.again_in),
            Self::Compensated(_) | Self::Stuck(_) | Self::StepsChanged { .. } | Self::Completed => {
                Retry::Never
            }
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
        let of = if self.compensation {
            "the compensation of step"
        } else {
            "step"
        };
        let (step, attempts, error) = (&self.step, self.attempts, &self.error);
        write!(f, "{of} {step} failed (attempt {attempts}): {error}")
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
                "the saga waits: {left} (effect: unknown; it is tried again later, ask with the \
                 same key)"
            ),
            Self::Stuck(left) => write!(
                f,
                "the saga is stuck: {left} (effect: unknown; look at it, then retry, resolve or \
                 cancel it)"
            ),
            Self::StepsChanged { stored, current } => write!(
                f,
                "the saga was begun under the steps [{}], this build has [{}] (nothing was run; \
                 run a build that has those steps, or accept the list)",
                stored.join(", "),
                current.join(", ")
            ),
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
