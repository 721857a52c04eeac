//! Records in Redis (7.0 or newer) or Valkey: one key per record, one atomic script per step.
//!
//! # What holds
//! * **One owner at a time.** A step happens on the server, in one script on one key. A reservation
//!   is granted to one owner until its lease is over by the *server's* clock; a step of an owner
//!   that lost it changes nothing.
//! * **Fences grow.** A fence is the server's clock in microseconds and at least one more than the
//!   record's last fence. The last one is remembered with the record: while it is reserved and for a
//!   day after its lease ([`Builder::abandoned_for`]), while its outcome is kept, and for
//!   two minutes after it was released or forgotten. After that, growth rests on the server's clock
//!   alone: a fence would have to be asked for after the clock went back by more than the time that
//!   has passed since the record's last reservation to be no higher than that one's.
//! * **A request that is sent twice is one request.** Clients that repeat commands by themselves
//!   (the cluster client does, up to 16 times) and answers that are lost do no harm: an owner that
//!   already holds the record is granted it again, an outcome that is already recorded is recorded.
//! * **No key without an end**, except an outcome that is kept for ever and a reservation of an
//!   operation that holds after a crash, once it is confirmed
//!   ([`OnCrash::Hold`](crate::protocol::OnCrash)).
//! * **Fail closed.** A server that is down, silent past the limit, full, read-only or in a broken
//!   cluster refuses the call; the body does not run.
//! * **A full server still records outcomes.** Under `maxmemory` new reservations are refused, while
//!   those that run are completed above the limit; that is bounded by what was running.
//!
//! # What does not
//! * A record that is **evicted** is a call that runs twice; [`RedisStore::check`] refuses every
//!   policy but `noeviction`.
//! * A **restart** without `appendonly` forgets records. With `appendfsync everysec` a killed server
//!   loses nothing and a power cut about a second.
//! * A **failover** forgets what the promoted replica had not got: two callers can both be granted
//!   the record. [`Builder::wait_replicas`] narrows this, and a resource that checks the
//!   [`fence`](crate::engine::fence) refuses the older caller as long as the two servers' clocks
//!   agree better than the time between the calls. Where that is not enough, the record belongs in
//!   the database that the body writes to.
//! * A **lease is time**: a process that is stopped past its lease goes on afterwards. Hand the fence
//!   to what the body writes to.
//!
//! # Cost
//! A reservation is one round trip, and so is a replay. Where an operation's recent calls were nearly
//! all replays they are answered by a plain `GET`, and only a call that is none pays a second trip;
//! this is measured per operation and needs no setting.
//!
//! # Permissions
//! `EVAL`, `EVALSHA`, `GET`, `SET`, `TIME`, `PTTL`, `PEXPIRETIME` on the keys of the prefix, and for
//! [tokens](crate::token::RedisTokens) `EXISTS`, `HSET`, `HMGET`, `HDEL`, `PEXPIRE` and `DEL`; `PING`,
//! `INFO` and `CONFIG GET` for [`RedisStore::check`], of which the last two may be missing; `WAIT`
//! for [`Builder::wait_replicas`].

mod builder;
mod check;
mod copy;
mod error;
#[cfg(feature = "tiered")]
mod front;
mod link;
mod reconnecting;
mod record;
mod repeats;
mod script;
mod steps;
mod token;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

pub use builder::{Builder, DEFAULT_ABANDONED_FOR, DEFAULT_LIMIT};
pub use check::{Report, Warning};
#[cfg(feature = "tiered")]
pub use front::{DEFAULT_FRONT_LIMIT, DEFAULT_MAX_AGE, RedisFront};
pub use link::Connection;
pub(crate) use token::{End, Said, Take};

use crate::error::Error;
use crate::key::RecordId;
use link::Link;
use repeats::Repeats;
use script::Replicas;

const SHARDS: usize = 64;

/// A store on Redis. See the [module](self) for what it promises.
///
/// ```no_run
/// # async fn example() -> Result<(), idem_runtime::Error> {
/// use idem_runtime::store::redis::RedisStore;
///
/// let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
/// store.check().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    link: Link,
    namespace: String,
    prefix: String,
    limit: Duration,
    abandoned_for: Duration,
    replicas: Option<Replicas>,
    eviction_allowed: bool,
    repeats: Repeats,
    changed: [Notify; SHARDS],
}

impl Inner {
    fn new(link: Link, namespace: String, prefix: String) -> Self {
        Self {
            link,
            namespace,
            prefix,
            limit: DEFAULT_LIMIT,
            abandoned_for: DEFAULT_ABANDONED_FOR,
            replicas: None,
            eviction_allowed: false,
            repeats: Repeats::new(),
            changed: std::array::from_fn(|_| Notify::new()),
        }
    }
}

impl RedisStore {
    /// Connects to one server with the defaults.
    ///
    /// # Errors
    /// As [`Builder::connect`].
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// A store made to measure.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// The name of a record's key, for looking at it by hand.
    #[must_use]
    pub fn key_of(&self, id: RecordId) -> String {
        String::from_utf8(record::key(&self.inner.prefix, id)).unwrap_or_default()
    }
}
