//! The leased store in real databases: laws, killed and stopped processes, lost answers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on panics"
)]

mod conformance;
mod faults;
mod mariadb;
mod processes;
mod status;
mod support;
mod table;
mod together;
mod tombstone;
