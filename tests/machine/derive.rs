//! What the derive generates.

use idem::StateMachine;
use idem::machine::State;

use crate::fixture::{Job, Status};

const _: () = assert!(Status::Pending.can_transition_to(Status::Paid));
const _: () = assert!(!Status::Paid.can_transition_to(Status::Pending));
const _: () = assert!(Status::Refunded.is_terminal() && !Status::Paid.is_terminal());

#[test]
fn every_pair_of_states_is_a_transition_or_not() {
    let declared = [
        (Status::Pending, Status::Paid),
        (Status::Pending, Status::Cancelled),
        (Status::Paid, Status::Refunding),
        (Status::Refunding, Status::Refunded),
    ];
    for &from in Status::ALL {
        for &to in Status::ALL {
            let is = declared.contains(&(from, to));
            assert_eq!(from.can_transition_to(to), is, "{from:?} to {to:?}");
            assert_eq!(from.exits().contains(&to), is);
            assert_eq!(Status::sources_of(to).contains(&from), is);
            assert_eq!(State::sources(to).contains(&from), is);
        }
        assert_eq!(from.is_terminal(), from.exits().is_empty());
    }
    assert_eq!(Status::INITIAL, Status::Pending);
    assert_eq!(Status::ALL.len(), 5);
    assert_eq!(<Status as State>::NAME, "Status");
}

#[test]
fn sm_07_texts_are_read_back_and_others_are_named() {
    for &state in Status::ALL {
        assert_eq!(Status::parse(state.as_str()), Ok(state));
        assert_eq!(state.as_str().parse(), Ok(state));
    }
    assert_eq!(Status::Cancelled.as_str(), "closed");
    for text in ["Paid", "PAID", "paid ", "", "cancelled"] {
        let error = Status::parse(text).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{text:?} is not a state of `Status`")
        );
    }
    // A long text does not make a long error.
    let error = Status::parse(&"x".repeat(1000)).unwrap_err();
    assert_eq!(error.text().len(), 64);
}

#[test]
fn the_machine_as_mermaid() {
    assert_eq!(
        Status::mermaid(),
        "stateDiagram-v2\n    \
             Pending : pending\n    \
             Paid : paid\n    \
             Refunding : refunding\n    \
             Refunded : refunded\n    \
             Cancelled : closed\n    \
             [*] --> Pending\n    \
             Pending --> Paid\n    \
             Pending --> Cancelled\n    \
             Paid --> Refunding\n    \
             Refunding --> Refunded\n    \
             Refunded --> [*]\n    \
             Cancelled --> [*]\n"
    );
}

#[test]
fn the_machine_as_a_graph() {
    assert_eq!(
        Job::dot(),
        "digraph Job {\n    \
             __begin [shape=point];\n    \
             \"queued\" [shape=box, peripheries=1];\n    \
             \"started\" [shape=box, peripheries=1];\n    \
             \"succeeded\" [shape=box, peripheries=2];\n    \
             \"expired\" [shape=box, peripheries=2];\n    \
             __begin -> \"queued\";\n    \
             \"queued\" -> \"started\";\n    \
             \"started\" -> \"succeeded\";\n    \
             \"started\" -> \"expired\";\n    \
             \"started\" -> \"queued\";\n\
         }\n"
    );
}

/// A keyword as a name, discriminants, attributes on several lines, one state alone.
mod forms {
    use super::StateMachine;

    #[derive(StateMachine, Clone, Copy, Debug, PartialEq, Eq)]
    #[state_machine(column = 5, crate = ::idem)]
    #[repr(u8)]
    pub(super) enum Forms {
        #[state(initial)]
        #[state(to(r#Break))]
        A = 7,
        #[state(terminal)]
        #[allow(clippy::upper_case_acronyms)]
        r#Break = 9,
    }

    #[derive(StateMachine, Clone, Copy, Debug, PartialEq, Eq)]
    #[state_machine(column = 4)]
    pub(super) enum Alone {
        #[state(initial, terminal)]
        Here,
    }
}

#[test]
fn unusual_forms() {
    assert_eq!(forms::Forms::r#Break.as_str(), "break");
    assert!(forms::Forms::A.can_transition_to(forms::Forms::Break));
    assert!(forms::Alone::Here.is_terminal());
    assert_eq!(forms::Alone::sources_of(forms::Alone::Here), []);
}

/// Names of the prelude that the user has taken.
mod decoys {
    #![allow(dead_code, non_camel_case_types)]
    mod core {}
    mod std {}
    mod idem {}
    struct Result;
    struct str;
    struct bool;

    #[derive(::idem::StateMachine, Clone, Copy, Debug, PartialEq, Eq)]
    #[state_machine(column = 16)]
    enum Decoy {
        #[state(initial, to(Ok))]
        Err,
        #[state(terminal)]
        Ok,
    }
}
