//! What a test of an idempotent function, or of a store, needs.
//!
//! * [`replay`] calls a function many times at once and asserts one run and equal answers.
//! * [`clock`] is a clock that a test moves.
//! * [`fault`] makes a store fail, lose answers, be slow or hang at a step that the test names.
//! * [`conformance`] is the suite that every leased store passes.

// Broken laws are reported the way tests report: by a panic.
#![allow(clippy::panic)]

pub mod clock;
pub mod conformance;
pub mod fault;
pub mod replay;
