//! The states of a saga and of its steps, and their rows.

use bytes::Bytes;

use super::status::count;

/// Where a saga stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SagaState {
    /// Its steps run, or wait to be run on.
    Running,
    /// A step failed for good, or it was cancelled: what was done is being undone.
    Compensating,
    /// Every step is done.
    Completed,
    /// Every step that had, or may have had, an effect is undone.
    Compensated,
}

/// Where one step stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StepState {
    /// Nothing is known of it: it was not begun, or its transaction did not commit.
    Pending,
    /// Recorded before an outside step is called; while it stands the effect is unknown.
    Started,
    /// Its result is recorded.
    Done,
    /// It failed for good.
    Failed,
    /// Its compensation was begun.
    Compensating,
    /// Its compensation is done.
    Compensated,
    /// Its compensation failed, and is tried again.
    CompensationFailed,
}

/// Why nobody runs a saga that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rest {
    /// An attempt failed, and is repeated when its time has come.
    Waiting,
    /// It needs a person.
    Stuck,
}

/// Why a saga does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// An attempt of a step, or of its compensation, failed.
    AttemptFailed,
    /// An attempt took longer than [its time-out](super::StepOptions::timeout).
    TimedOut,
    /// The process, or the future, did not survive an attempt.
    Interrupted,
    /// The compensation refused: it cannot be done.
    Refused,
    /// A result cannot be recorded, or no longer decodes.
    ResultUnusable,
    /// Whether the step had its effect is unknown, and as it is declared now, as a transactional one, it
    /// cannot be told.
    EffectUnknown,
    /// The step had a compensation when the saga was begun, and is declared without one now.
    CompensationMissing,
    /// The saga's stored input does not decode as this build's type.
    InputUndecodable,
    /// It was begun under another list of steps.
    StepsChanged,
    /// The worker that ran it was told to stop.
    WorkerStopped,
}

macro_rules! texts {
    ($enum:ident: $($state:ident = $text:literal),* $(,)?) => {
        impl $enum {
            /// The text, as it stands in the table.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$state => $text),* }
            }

            pub(super) fn from_text(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$state),)* _ => None }
            }
        }
    };
}

texts!(SagaState: Running = "running", Compensating = "compensating", Completed = "completed",
    Compensated = "compensated");
texts!(Rest: Waiting = "waiting", Stuck = "stuck");
texts!(Cause: AttemptFailed = "attempt failed", TimedOut = "timed out", Interrupted = "interrupted",
    Refused = "refused", ResultUnusable = "result unusable", EffectUnknown = "effect unknown",
    CompensationMissing = "compensation missing", InputUndecodable = "input undecodable",
    StepsChanged = "steps changed", WorkerStopped = "worker stopped");
texts!(StepState: Pending = "pending", Started = "started", Done = "done", Failed = "failed",
    Compensating = "compensating", Compensated = "compensated",
    CompensationFailed = "compensation failed");

/// A saga's row.
#[derive(Clone, Debug)]
pub struct SagaRow {
    pub(super) name: String,
    pub(super) key: String,
    pub(super) fingerprint: [u8; 17],
    /// `None`: cancelled before it began.
    pub(super) input: Option<Bytes>,
    /// The list of steps it was begun under.
    pub(super) steps: String,
    pub(super) state: SagaState,
    pub(super) cancelled: bool,
    /// Why nobody runs it, where that is on purpose.
    pub(super) rest: Option<Rest>,
    pub(super) owner: [u8; 16],
    pub(super) fence: i64,
    pub(super) failed_step: Option<String>,
    pub(super) error: Option<String>,
    /// Why it does not go on.
    pub(super) stall: Option<Stall>,
    /// Milliseconds until anybody but the owner may touch it; `None`: nobody needs to any more.
    pub(super) due_in: Option<i64>,
}

impl SagaRow {
    pub(super) fn is_due(&self) -> bool {
        self.due_in.is_some_and(|left| left <= 0)
    }
}

/// Why a saga does not go on, as it is kept for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    pub(super) cause: Cause,
    /// The step, if it is about one.
    pub(super) step: Option<String>,
    pub(super) error: Option<String>,
}

/// A step's row.
#[derive(Clone, Debug)]
pub struct StepRow {
    /// Whether there is a row of it in the table.
    pub(super) recorded: bool,
    pub(super) number: i32,
    pub(super) name: String,
    pub(super) state: StepState,
    /// Whether an attempt ended without anybody knowing if it had its effect.
    pub(super) unknown: bool,
    /// Whether its effect was there before, and is not undone.
    pub(super) left_alone: bool,
    pub(super) attempts: i32,
    pub(super) undo_attempts: i32,
    /// Those of them that were made before a person let it be tried again.
    pub(super) forgiven: i32,
    pub(super) undo_forgiven: i32,
    pub(super) result: Option<Bytes>,
    pub(super) error: Option<String>,
}

impl StepRow {
    /// How many attempts were made, of its compensation with `undo`.
    pub(super) fn made(&self, undo: bool) -> u32 {
        count(if undo {
            self.undo_attempts
        } else {
            self.attempts
        })
    }

    /// How many of them count.
    pub(super) fn counted(&self, undo: bool) -> u32 {
        let forgiven = if undo {
            self.undo_forgiven
        } else {
            self.forgiven
        };
        self.made(undo).saturating_sub(count(forgiven))
    }

    pub(super) fn pending(number: usize, name: &str) -> Self {
        Self {
            recorded: false,
            number: i32::try_from(number).unwrap_or(i32::MAX),
            name: name.to_owned(),
            state: StepState::Pending,
            unknown: false,
            left_alone: false,
            attempts: 0,
            undo_attempts: 0,
            forgiven: 0,
            undo_forgiven: 0,
            result: None,
            error: None,
        }
    }
}
