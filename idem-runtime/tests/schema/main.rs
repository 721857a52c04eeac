//! The schemas of every table: printed, migrated, checked, on each database.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code: what cannot go on panics in the test that called it"
)]

mod by_hand;
mod mariadb;
mod postgres;
mod sqlite;
mod versions;
mod world;
