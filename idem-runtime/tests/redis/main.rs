//! The Redis store against real servers: laws, faults, clusters.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on panics"
)]

mod calls;
mod cluster;
mod conformance;
mod faults;
mod format;
mod holds;
mod leases;
mod memory;
mod processes;
mod replicas;
mod requests;
mod settings;
mod status;
mod support;
mod ttl;
