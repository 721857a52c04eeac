//! No lint fires on generated code. The module is compiled by clippy too.
#![deny(
    warnings,
    missing_docs,
    unused,
    unreachable_pub,
    unused_qualifications,
    single_use_lifetimes,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::implicit_return,
    clippy::shadow_reuse,
    clippy::absolute_paths,
    clippy::exhaustive_enums,
    clippy::question_mark_used,
    clippy::pattern_type_mismatch,
    clippy::wildcard_enum_match_arm,
    clippy::missing_trait_methods,
    clippy::missing_inline_in_public_items
)]

use idem::StateMachine;

/// A machine that nothing uses.
#[derive(StateMachine, Clone, Copy, Debug, PartialEq, Eq)]
#[state_machine(column = 4)]
#[allow(dead_code, reason = "only its lints are of interest")]
enum Lamp {
    /// Dark.
    #[state(initial, to(On))]
    Off,
    /// Bright.
    #[state(to(Off))]
    On,
}
