//! MySQL and MariaDB, against a real server: the one that `IDEM_TEST_MARIADB_URL` names, which may be
//! a MySQL.
//!
//! A retried insert that meets its own row after a lost answer cannot happen here: the row and the
//! connection are of one transaction, which the lost connection ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that fails may panic

mod abandoned;
mod caller;
mod circles;
mod crash;
mod database;
mod dropped;
mod ended;
mod expiry;
mod isolation;
mod keys;
mod lost;
mod marked;
mod on_mysql;
mod refusals;
mod schema;
mod service;
mod status;
mod storms;
mod uncommitted;
mod versions;
