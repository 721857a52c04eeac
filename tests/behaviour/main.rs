//! Keys, payloads, outcomes, errors and observation, through the attribute: in the caller's
//! transaction, and with a leased store.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests: what cannot go on fails the test that called it"
)]

mod support;

mod backstop;
mod codecs;
mod companion;
mod ends;
mod evolution;
mod identity;
mod keeping;
mod keys;
mod observing;
mod one_answer;
mod order_of_attributes;
mod outcomes;
mod path;
mod payloads;
mod policy;
mod progress;
mod retention;
mod sizes;
mod stores;
mod waiting;
