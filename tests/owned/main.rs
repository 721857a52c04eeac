//! A transaction of the framework's own: `store = pool, tx = name`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests: what cannot go on fails the test that called it"
)]
#![allow(
    clippy::duplicate_mod,
    reason = "what holds on both databases is compiled once for each"
)]
#![allow(
    dead_code,
    reason = "each database uses its part of the functions under test"
)]

mod support;

mod postgres;
mod sqlite;

mod begin;
mod commit;
mod connections;
mod reads;
mod refused;
mod retry;
mod tenants;
mod together;
mod writers;
