//! The optimistic lock on real databases: nothing is lost, nothing is silent.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code: what cannot go on panics in the test that called it"
)]

mod isolation;
mod retry;
mod shop;
mod update;
