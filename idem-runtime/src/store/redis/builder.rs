use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::io::tcp::TcpSettings;
use ::redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, RedisResult};
use tokio::time::Instant;

use super::link::{self, Connection, Link};
use super::reconnecting::Reconnecting;
use super::script::Replicas;
use super::{Inner, RedisStore, error};
use crate::error::{Error, ErrorKind};

/// How long a call of the store may take unless it is told otherwise.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(1);

/// How long a reservation is remembered after its lease has ended, unless it is told otherwise.
pub const DEFAULT_ABANDONED_FOR: Duration = Duration::from_secs(86_400);

/// How a [`RedisStore`] is made.
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    namespace: String,
    prefix: String,
    limit: Duration,
    abandoned_for: Duration,
    replicas: Option<Replicas>,
    eviction_allowed: bool,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            namespace: String::new(),
            prefix: "idem".to_owned(),
            limit: DEFAULT_LIMIT,
            abandoned_for: DEFAULT_ABANDONED_FOR,
            replicas: None,
            eviction_allowed: false,
        }
    }

    /// Separates the records of several users of one server: part of every record's id and of its
    /// key's name. Letters, digits, `_`, `-` and `.`, at most 64 of them.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// What the names of all keys begin with (`idem`), for servers that grant users a prefix each.
    /// Letters, digits, `_`, `-`, `.` and `:`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long one step may take: connecting, sending, and sending again included.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// How long a reservation is remembered after its lease has ended. It may be taken over all that
    /// time; until it is, its late owner can still complete it, and [`lookup`] shows it.
    ///
    /// [`lookup`]: crate::store::Store::lookup
    pub fn abandoned_for(mut self, time: Duration) -> Self {
        self.abandoned_for = time;
        self
    }

    /// A reservation and an outcome count only when `count` replicas have acknowledged them within
    /// `timeout`, which comes on top of the limit.
    ///
    /// With fewer, a reservation is given back and the call is refused, and an outcome is written
    /// again. It narrows what a failover can lose; it does not make Redis a consensus store: a
    /// replica that has not acknowledged can still be promoted unless `count` is all of them.
    ///
    /// The waiting blocks the connection that all calls of this store share.
    pub fn wait_replicas(mut self, count: usize, timeout: Duration) -> Self {
        self.replicas = Some(Replicas {
            count,
            // Zero would wait for ever.
            millis: u64::try_from(timeout.as_millis())
                .unwrap_or(u64::MAX)
                .max(1),
        });
        self
    }

    /// Lets [`check`](RedisStore::check) pass a server that may evict records. **An evicted record
    /// is a call that runs twice.**
    pub fn allow_eviction(mut self) -> Self {
        self.eviction_allowed = true;
        self
    }

    /// Connects to one server: `redis://user:password@host:port/database`. The connection is made
    /// again when it breaks.
    ///
    /// # Errors
    /// [`ErrorKind::StoreUnavailable`]; [`ErrorKind::Schema`] for a namespace or prefix that cannot
    /// be used.
    pub async fn connect(self, url: impl IntoConnectionInfo + Send) -> Result<RedisStore, Error> {
        let info = url.into_connection_info().map_err(error::before)?;
        // A call waits for its answer: small packets must not wait for company.
        let tcp = TcpSettings::default().set_nodelay(true);
        let client = Client::open(info.set_tcp_settings(tcp)).map_err(error::before)?;
        // The store has a limit of its own, which covers the whole step.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None);
        self.connect_by(move || {
            let (client, config) = (client.clone(), config.clone());
            async move {
                client
                    .get_multiplexed_async_connection_with_config(&config)
                    .await
            }
        })
        .await
    }

    /// Connects by a function that is called again whenever the connection breaks, falls silent or
    /// turns out to be to a server that is no longer the master: the place for a Sentinel to be
    /// asked.
    ///
    /// ```no_run
    /// # use idem_runtime::store::redis::RedisStore;
    /// # async fn ask_the_sentinel() -> redis::RedisResult<redis::Client> { redis::Client::open("") }
    /// # async fn example() -> Result<(), idem_runtime::Error> {
    /// let store = RedisStore::builder()
    ///     .connect_by(|| async {
    ///         let master: redis::Client = ask_the_sentinel().await?;
    ///         master.get_multiplexed_async_connection().await
    ///     })
    ///     .await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_by<F>(
        self,
        dial: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<RedisStore, Error>
    where
        F: Future<Output = RedisResult<MultiplexedConnection>> + Send + 'static,
    {
        let link = Arc::new(Reconnecting::new(dial));
        let store = self.over(Link::Reconnecting(Arc::clone(&link)))?;
        link.connect(Instant::now() + store.inner.limit)
            .await
            .map_err(error::before)?;
        Ok(store)
    }

    /// A store on a connection of the caller's, with whatever timeouts that has besides the limit.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] for a namespace or prefix that cannot be used.
    pub fn build(self, connection: impl Connection) -> Result<RedisStore, Error> {
        self.over(link::of(connection))
    }

    fn over(self, link: Link) -> Result<RedisStore, Error> {
        let refused = |what: &str| Err(Error::new(ErrorKind::Schema).detail(what));
        if !plain(&self.namespace, "_-.") || self.namespace.len() > 64 {
            return refused("a namespace has at most 64 letters, digits, `_`, `-` and `.`");
        }
        if self.prefix.is_empty() || !plain(&self.prefix, "_-.:") {
            return refused("a prefix has letters, digits, `_`, `-`, `.` and `:`");
        }
        let mut prefix = self.prefix + ":";
        if !self.namespace.is_empty() {
            prefix = prefix + &self.namespace + ":";
        }
        let inner = Inner::new(link, self.namespace, prefix);
        Ok(RedisStore {
            inner: Arc::new(Inner {
                limit: self.limit,
                abandoned_for: self.abandoned_for,
                replicas: self.replicas,
                eviction_allowed: self.eviction_allowed,
                ..inner
            }),
        })
    }
}

fn plain(text: &str, also: &str) -> bool {
    text.chars()
        .all(|c| c.is_ascii_alphanumeric() || also.contains(c))
}
