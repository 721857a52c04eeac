use std::fmt;

/// The states of a machine and what leads from one to another. Implemented by
/// `#[derive(StateMachine)]`, which checks that the machine is sound.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no state machine",
    label = "not a state machine",
    note = "declare its transitions with `#[derive(StateMachine)]`"
)]
pub trait State: Copy + Eq + fmt::Debug + Send + Sync + 'static {
    /// The name of the enum.
    const NAME: &'static str;
    /// Every state.
    const ALL: &'static [Self];
    /// The state that a new row begins in.
    const INITIAL: Self;

    /// The text of the state, as it stands in its column.
    fn as_str(self) -> &'static str;

    /// The states that this one may go to.
    fn exits(self) -> &'static [Self];

    /// The states that may go to this one.
    fn sources(self) -> &'static [Self];
}

/// A text that is no state of a machine: from another version, or written by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownState {
    machine: &'static str,
    text: String,
}

/// As much of an unknown text as an error keeps, in characters.
const KEPT: usize = 64;

impl UnknownState {
    /// The machine's name.
    #[must_use]
    pub fn machine(&self) -> &'static str {
        self.machine
    }

    /// The text, or its beginning.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for UnknownState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no state of `{}`", self.text, self.machine)
    }
}

impl std::error::Error for UnknownState {}

/// The state of a text.
///
/// # Errors
/// If it is the text of none.
pub fn parse_state<S: State>(text: &str) -> Result<S, UnknownState> {
    let found = S::ALL.iter().find(|state| state.as_str() == text);
    found.copied().ok_or_else(|| UnknownState {
        machine: S::NAME,
        text: text.chars().take(KEPT).collect(),
    })
}
