//! States, and what leads from one to another.

use std::fmt;

use crate::error::{Effect, Retry};

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
    /// Nothing was changed.
    #[must_use]
    pub fn effect(&self) -> Effect {
        Effect::None
    }

    /// It takes a version that knows the state, or another text in the row.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }

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
        write!(f, "{:?} is not a state of `{}`", self.text, self.machine)
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

/// Whether a row in the state `current` has certainly been in `passed`, and will not be there again.
///
/// Decided by the declared transitions alone, for a row that began in [`State::INITIAL`]:
///
/// 1. every way from the initial state to `current` leads through `passed`, and
/// 2. no way leads from `current` to `passed`: on a circle a late event cannot be told from an early
///    one.
#[cfg(feature = "_sqlx")]
pub(super) fn has_passed<S: State>(current: S, passed: S) -> bool {
    current != passed
        && !reachable(current, None).contains(&passed)
        && (passed == S::INITIAL || !reachable(S::INITIAL, Some(passed)).contains(&current))
}

/// The states that can be come to from `from`, itself included, without going through `without`.
#[cfg(feature = "_sqlx")]
fn reachable<S: State>(from: S, without: Option<S>) -> Vec<S> {
    let mut found = vec![from];
    let mut next = 0;
    while let Some(state) = found.get(next).copied() {
        next += 1;
        for exit in state.exits() {
            if Some(*exit) != without && !found.contains(exit) {
                found.push(*exit);
            }
        }
    }
    found
}

#[cfg(all(test, feature = "_sqlx"))]
mod tests {
    use super::{State, has_passed};

    /// `Begun` leads to `Paid` and `Void`; `Paid` to `Held`, `Sent` and `Void`, and back from `Held`;
    /// `Sent` to `Done`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Order {
        Begun,
        Paid,
        Held,
        Sent,
        Done,
        Void,
    }

    use Order::{Begun, Done, Held, Paid, Sent, Void};

    impl State for Order {
        const NAME: &'static str = "Order";
        const ALL: &'static [Self] = &[Begun, Paid, Held, Sent, Done, Void];
        const INITIAL: Self = Begun;

        fn as_str(self) -> &'static str {
            "not asked for"
        }

        fn exits(self) -> &'static [Self] {
            match self {
                Begun => &[Paid, Void],
                Paid => &[Held, Sent, Void],
                Held => &[Paid],
                Sent => &[Done],
                Done | Void => &[],
            }
        }

        fn sources(self) -> &'static [Self] {
            match self {
                Begun => &[],
                Paid => &[Begun, Held],
                Held => &[Paid],
                Sent => &[Paid],
                Done => &[Sent],
                Void => &[Begun, Paid],
            }
        }
    }

    #[test]
    fn passed_is_what_every_way_leads_through_and_none_leads_back_to() {
        let passed = [
            (Paid, Begun),
            (Held, Begun),
            (Sent, Begun),
            (Sent, Paid),
            (Done, Begun),
            (Done, Paid),
            (Done, Sent),
            (Void, Begun),
        ];
        for current in Order::ALL {
            for state in Order::ALL {
                let expected = passed.contains(&(*current, *state));
                assert_eq!(
                    has_passed(*current, *state),
                    expected,
                    "{current:?} {state:?}"
                );
            }
        }
        // Held and Paid are a circle; a void order may never have been paid; a done one never held.
        for (current, state) in [(Held, Paid), (Paid, Held), (Void, Paid), (Done, Held)] {
            assert!(!has_passed(current, state));
        }
    }
}
