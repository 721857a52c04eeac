//! A fresh MariaDB database per test, and servers to kill.

mod database;
mod server;

pub use database::{MariaDb, MariaDbDatabase, pool};
pub use server::MariaDbServer;
