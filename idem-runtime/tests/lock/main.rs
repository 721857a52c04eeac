//! Locks on real servers: exclusion, late holders, every way to end, waiting, broken connections.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on panics"
)]

mod advisory;
mod ends;
mod exclusion;
mod faults;
mod fenced;
mod late;
mod pooler;
mod support;
mod waiting;
