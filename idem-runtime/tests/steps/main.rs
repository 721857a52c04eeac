//! Sagas on real databases: one effect a step, or all of them undone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code: what cannot go on panics in the test that called it"
)]

mod cancel;
mod compensation;
mod crash;
mod doubt;
mod dropped;
mod idempotent;
mod kinds;
mod lists;
mod operate;
mod owners;
mod repeats;
mod retries;
mod shop;
mod table;
mod texts;
mod timeouts;
mod workers;
mod world;
