//! One-time tokens: signed and stored ones on each database, those of one process, and those in Redis.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code: what cannot go on panics in the test that called it"
)]

mod argument;
mod consume;
mod mariadb;
mod memory;
mod processes;
mod redis;
mod refused;
mod table;
mod world;
