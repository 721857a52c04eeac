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

/// The URL of the server that the run has for `who`.
fn server_url(variable: &str, who: &str) -> String {
    match std::env::var(variable) {
        Ok(url) if !url.is_empty() => url,
        _ => panic!(
            "this test needs a {who} server and {variable} is not set: run the tests with \
             `scripts/test` (or `scripts/test -- NAME` for some of them), which starts one"
        ),
    }
}

/// Drops a test's database, but not after a panic: one can look at what the test left.
fn drop_database<F>(url: &str, drop: F)
where
    F: Future<Output = Result<(), sqlx::Error>> + Send + 'static,
{
    if std::thread::panicking() {
        eprintln!("the test database is kept: {url}");
        return;
    }
    // A runtime of its own: the test's may be shut down, paused, or single-threaded.
    let dropped = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(drop)
    })
    .join();
    match dropped {
        Ok(Ok(())) => {}
        Ok(Err(error)) => eprintln!("cannot drop the test database {url}: {error}"),
        Err(_) => eprintln!("cannot drop the test database {url}"),
    }
}

/// A name that no other test has, for a database or a folder.
fn unique_name() -> String {
    let mut random = [0; 8];
    getrandom::fill(&mut random).expect("the system gives random bytes");
    format!("idem_{:016x}", u64::from_ne_bytes(random))
}
