//! What the tests share: real databases, broken networks, killed processes, dropped futures.
//!
//! | module | idea |
//! |---|---|
//! | [`postgres`] | a fresh database on the server that `scripts/test` started |
//! | [`mariadb`] | the same on MariaDB, and servers to kill |
//! | [`redis`] | a Redis server for everybody, and some to kill, to stop and to cluster |
//! | [`sqlite`] | a fresh file, as a service would open it |
//! | [`proxy`] | a TCP proxy that loses answers, delays, cuts, and tells what went through it |
//! | [`child`] | this very test program again, as a process to kill or to stop |
//! | [`body`] | the inside of a function under test: counted, and stopped midway |
//! | [`poll`] | a future dropped after its n-th poll, or after a time |
//!
//! Nothing here skips: a test without its server fails and says how to get one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::exhaustive_enums,
    reason = "test code, unpublished: what cannot go on panics in the test that called it"
)]

pub mod body;
pub mod child;
pub mod mariadb;
pub mod poll;
pub mod postgres;
pub mod proxy;
pub mod redis;
pub mod sqlite;

pub use body::Body;
pub use mariadb::{MariaDb, MariaDbDatabase, MariaDbServer};
pub use postgres::{Postgres, TestDatabase};
pub use proxy::Proxy;
pub use redis::{Redis, RedisCluster, RedisServer};
pub use sqlite::{Sqlite, SqliteFile};

/// A name that no other test has, for a database or a folder.
fn unique_name() -> String {
    let mut random = [0; 8];
    getrandom::fill(&mut random).expect("the system gives random bytes");
    format!("idem_{:016x}", u64::from_ne_bytes(random))
}
