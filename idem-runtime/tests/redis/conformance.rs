//! The laws of every store, on one server and on a cluster.

use std::sync::OnceLock;
use std::time::Duration;

use idem_runtime::store::redis::RedisStore;
use idem_runtime::testing::conformance::{Harness, Time};
use idem_test_support::{Redis, RedisCluster};

use crate::support;

const LEASE: Duration = Duration::from_millis(500);

async fn harness(namespace: &str) -> Harness<RedisStore> {
    let url = Redis::url();
    let store = |namespace: String| {
        RedisStore::builder()
            .namespace(namespace)
            .connect(url.as_str())
    };
    let neighbour = store(format!("{namespace}.there")).await.unwrap();
    Harness::new(
        store(namespace.to_owned()).await.unwrap(),
        Time::Real(LEASE),
    )
    .neighbour(neighbour)
    .expires_by_itself()
    .announces_changes()
}

mod one_server {
    idem_runtime::store_conformance!(super::harness(&super::support::namespace()).await);
}

async fn on_a_cluster(namespace: &str) -> Harness<RedisStore> {
    static CLUSTER: OnceLock<RedisCluster> = OnceLock::new();
    let cluster = CLUSTER.get_or_init(|| RedisCluster::start(3));
    let connection = support::cluster_connection(cluster).await;
    let store = |namespace: String| {
        let builder = RedisStore::builder().namespace(namespace);
        builder.build(connection.clone()).unwrap()
    };
    Harness::new(store(namespace.to_owned()), Time::Real(LEASE))
        .neighbour(store(format!("{namespace}.there")))
        .expires_by_itself()
        .announces_changes()
}

mod a_cluster {
    idem_runtime::store_conformance!(super::on_a_cluster(&super::support::namespace()).await);
}
