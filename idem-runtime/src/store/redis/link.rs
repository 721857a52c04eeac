//! How commands reach the server.

use std::fmt;
use std::sync::Arc;

use ::redis::aio::{ConnectionLike, ConnectionManager, MultiplexedConnection};
#[cfg(feature = "redis-cluster")]
use ::redis::cluster_async::ClusterConnection;
#[cfg(feature = "redis-cluster")]
use ::redis::cluster_routing::{
    MultipleNodeRoutingInfo, Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr,
};
use ::redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::time::Instant;

use super::reconnecting::{Reconnecting, within};

/// A connection that a [`RedisStore`](super::RedisStore) can be built on.
///
/// * `ConnectionManager`: one server; connects again by itself.
/// * `MultiplexedConnection`: one server, and no second connection when it breaks.
/// * `ClusterConnection` (feature `redis-cluster`): follows the slots.
pub trait Connection: sealed::IntoLink {}

impl Connection for ConnectionManager {}
impl Connection for MultiplexedConnection {}
#[cfg(feature = "redis-cluster")]
impl Connection for ClusterConnection {}

mod sealed {
    use super::{ConnectionManager, Link, MultiplexedConnection};

    pub trait IntoLink: Send + 'static {
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn into_link(self) -> Link;
    }

    #[allow(private_interfaces)]
    impl IntoLink for ConnectionManager {
        fn into_link(self) -> Link {
            Link::Manager(self)
        }
    }

    #[allow(private_interfaces)]
    impl IntoLink for MultiplexedConnection {
        fn into_link(self) -> Link {
            Link::Multiplexed(self)
        }
    }

    #[cfg(feature = "redis-cluster")]
    #[allow(private_interfaces)]
    impl IntoLink for super::ClusterConnection {
        fn into_link(self) -> Link {
            Link::Cluster(self)
        }
    }
}

pub(super) fn of(connection: impl Connection) -> Link {
    connection.into_link()
}

/// Where commands go.
#[derive(Clone)]
pub(super) enum Link {
    Reconnecting(Arc<Reconnecting>),
    Manager(ConnectionManager),
    Multiplexed(MultiplexedConnection),
    #[cfg(feature = "redis-cluster")]
    Cluster(ClusterConnection),
}

impl Link {
    /// Sends a command about `key` to the server that is in charge of it.
    pub(super) async fn send(
        &self,
        key: &[u8],
        command: Cmd,
        deadline: Instant,
    ) -> RedisResult<Value> {
        let answer = match self {
            Self::Reconnecting(link) => link.send(&command, deadline).await,
            Self::Manager(link) => {
                let mut link = link.clone();
                within(deadline, link.send_packed_command(&command)).await
            }
            Self::Multiplexed(link) => {
                let mut link = link.clone();
                within(deadline, link.send_packed_command(&command)).await
            }
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(link) => {
                let mut link = link.clone();
                let route = RoutingInfo::SingleNode(master_of(key));
                within(deadline, link.route_command(command, route)).await
            }
        };
        #[cfg(not(feature = "redis-cluster"))]
        let _ = key;
        answer.and_then(Value::extract_error)
    }

    /// Sends two commands on one connection, with nothing between them; the first is about `key`.
    pub(super) async fn send_pair(
        &self,
        key: &[u8],
        first: Cmd,
        second: Cmd,
        deadline: Instant,
    ) -> RedisResult<(Value, Value)> {
        let mut pair = Pipeline::with_capacity(2);
        pair.add_command(first).add_command(second);
        let answers = match self {
            Self::Reconnecting(link) => link.send_all(&pair, 2, deadline).await,
            Self::Manager(link) => {
                let mut link = link.clone();
                within(deadline, link.req_packed_commands(&pair, 0, 2)).await
            }
            Self::Multiplexed(link) => {
                let mut link = link.clone();
                within(deadline, link.req_packed_commands(&pair, 0, 2)).await
            }
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(link) => {
                let mut link = link.clone();
                within(deadline, link.route_pipeline(pair, 0, 2, master_of(key))).await
            }
        };
        #[cfg(not(feature = "redis-cluster"))]
        let _ = key;
        let mut answers = answers?.into_iter().map(Value::extract_error);
        match (answers.next(), answers.next()) {
            (Some(first), Some(second)) => Ok((first?, second?)),
            _ => Err(RedisError::from((
                ::redis::ErrorKind::Client,
                "two commands were sent and fewer answers came",
            ))),
        }
    }

    /// Asks every server that holds keys; each answer with the server's address, empty where there
    /// is only one.
    pub(super) async fn ask_masters(
        &self,
        question: Cmd,
        deadline: Instant,
    ) -> RedisResult<Vec<(String, Value)>> {
        #[cfg(feature = "redis-cluster")]
        if let Self::Cluster(link) = self {
            let mut link = link.clone();
            let all = MultipleNodeRoutingInfo::AllMasters;
            let policy = Some(::redis::cluster_routing::ResponsePolicy::Special);
            let route = RoutingInfo::MultiNode((all, policy));
            return match within(deadline, link.route_command(question, route)).await? {
                Value::Map(answers) => answers
                    .into_iter()
                    .map(|(address, answer)| {
                        let address: String = ::redis::from_redis_value(address)?;
                        Ok((address, answer.extract_error()?))
                    })
                    .collect(),
                other => Ok(vec![(String::new(), other.extract_error()?)]),
            };
        }
        let answer = self.send(&[], question, deadline).await?;
        Ok(vec![(String::new(), answer)])
    }

    /// Whether a command that failed like this may be sent again at once: over another connection,
    /// which this link finds by itself.
    pub(super) fn may_repeat(&self, error: &RedisError) -> bool {
        match self {
            Self::Reconnecting(_) => error.is_connection_dropped() || moved_away(error),
            Self::Manager(_) => error.is_connection_dropped(),
            Self::Multiplexed(_) => false,
            // It has repeated it already.
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(_) => false,
        }
    }
}

/// The server is no longer the one to write to.
pub(super) fn moved_away(error: &RedisError) -> bool {
    error.kind() == ::redis::ErrorKind::Server(::redis::ServerErrorKind::ReadOnly)
}

#[cfg(feature = "redis-cluster")]
fn master_of(key: &[u8]) -> SingleNodeRoutingInfo {
    SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master))
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reconnecting(_) => "Reconnecting",
            Self::Manager(_) => "ConnectionManager",
            Self::Multiplexed(_) => "MultiplexedConnection",
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(_) => "ClusterConnection",
        })
    }
}
