//! One-time tokens: signed and stored ones on each database, and those of one process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code: what cannot go on panics in the test that called it"
)]

mod call;
mod consume;
mod mariadb;
mod memory;
mod processes;
mod refused;
mod table;
mod world;
