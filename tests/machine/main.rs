//! State machines: what the derive gives, and transitions in Postgres, SQLite and MariaDB or MySQL.
//!
//! The third server is the one of `IDEM_TEST_MARIADB_URL`, which may be a MySQL. Names begin with the case they cover.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]
#![allow(
    clippy::duplicate_mod,
    reason = "what holds on all three is compiled once for each"
)]

mod derive;
mod fixture;
mod levels;
mod lints;
mod statements;

mod mysql;
mod postgres;
mod sqlite;
