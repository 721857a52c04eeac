//! The support does what the tests that lean on it believe.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers outside of test functions"
)]

mod child;
mod databases;
mod poll;
mod proxy;
