//! Redis: a server for everybody, servers to kill and to stop, a cluster.
//!
//! ```ignore
//! let url = Redis::url();                                  // shared: keys of one's own, please
//! let mut server = RedisServer::start(&["--appendonly", "yes"]);
//! server.kill9();
//! server.restart();
//! let cluster = RedisCluster::start(3);
//! cluster.migrate_slot(42, 0, 1);
//! ```

mod cluster;
mod server;
mod wire;

use std::sync::OnceLock;

pub use self::{cluster::RedisCluster, server::RedisServer, wire::Reply};

const VARIABLE: &str = "IDEM_TEST_REDIS_URL";

/// The Redis server of this test run.
#[derive(Debug)]
pub struct Redis;

impl Redis {
    /// The URL of a server that tests share: the one that `IDEM_TEST_REDIS_URL` names, or one of this
    /// process's own.
    ///
    /// # Panics
    /// When there is none and none can be started: a test that cannot test anything must not pass.
    #[must_use]
    pub fn url() -> String {
        // Never dropped: its watcher ends it with this process.
        static SERVER: OnceLock<RedisServer> = OnceLock::new();
        match std::env::var(VARIABLE) {
            Ok(url) if !url.is_empty() => url,
            _ => SERVER.get_or_init(|| RedisServer::start(&[])).url(),
        }
    }
}
