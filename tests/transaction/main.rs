//! The caller's transaction, on real databases, through the attribute: what stands and falls with
//! the caller's commit, under which fault.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code: what cannot go on panics in the test that called it"
)]

#[macro_use]
mod fixture;

mod again;
mod body;
mod caller;
mod circles;
mod dropped;
mod identity;
mod isolation;
mod keys;
mod levels;
mod network;
mod records;
mod reentrance;
mod refusals;
mod retention;
mod status;
mod storm;
mod tables;
mod take_over;
