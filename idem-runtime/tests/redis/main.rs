//! The Redis store against real servers: laws, faults, clusters.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on panics"
)]

mod conformance;
mod support;
