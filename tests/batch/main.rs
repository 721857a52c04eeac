//! Batches: many calls as one, on Postgres, SQLite, MariaDB, Redis and in memory. Names begin with the
//! case they cover.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]
#![allow(
    clippy::duplicate_mod,
    reason = "what holds on all databases is compiled once for each"
)]

mod bounds;
mod leased;
mod locks;
mod support;

mod mysql;
mod postgres;
mod sqlite;
