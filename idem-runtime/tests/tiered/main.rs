//! Fronts before transactions, pools and leased stores: what fills them, what never does, and what a
//! front that fails costs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on panics"
)]

mod committed;
mod down;
mod expiry;
mod late;
mod laws;
mod leased;
mod memory;
mod owned;
mod processes;
mod redis;
mod status;
mod support;
mod tombstone;
mod transaction;
