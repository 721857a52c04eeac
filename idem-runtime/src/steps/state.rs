use bytes::Bytes;

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
    /// Milliseconds until anybody but the owner may touch it; `None`: nobody needs to any more.
    pub(super) due_in: Option<i64>,
}

impl SagaRow {
    pub(super) fn is_due(&self) -> bool {
        self.due_in.is_some_and(|left| left <= 0)
    }
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
    pub(super) result: Option<Bytes>,
    pub(super) error: Option<String>,
}

impl StepRow {
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
            result: None,
            error: None,
        }
    }
}
