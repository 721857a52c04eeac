//! MySQL and MariaDB, against a real server: the one that `IDEM_TEST_MYSQL_URL` names, else a private
//! MariaDB that this program starts and that ends with it. Without either a test fails.
//!
//! A retried insert that meets its own row after a lost answer cannot happen here: the row and the
//! connection are of one transaction, which the lost connection ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that fails may panic
#![allow(clippy::print_stdout)] // a child process tells its parent

#[path = "mysql/abandoned.rs"]
mod abandoned;
#[path = "mysql/caller.rs"]
mod caller;
#[path = "mysql/crash.rs"]
mod crash;
#[path = "mysql/ended.rs"]
mod ended;
#[path = "mysql/expiry.rs"]
mod expiry;
#[path = "mysql/isolation.rs"]
mod isolation;
#[path = "mysql/keys.rs"]
mod keys;
#[path = "mysql/lost.rs"]
mod lost;
#[path = "mysql/on_mysql.rs"]
mod on_mysql;
#[path = "mysql/schema.rs"]
mod schema;
#[path = "mysql/server.rs"]
mod server;
#[path = "mysql/service.rs"]
mod service;
#[path = "mysql/storms.rs"]
mod storms;
