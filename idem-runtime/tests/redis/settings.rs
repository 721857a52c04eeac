//! What the start-up check says.

use std::time::Duration;

use idem_runtime::ErrorKind;
use idem_runtime::store::redis::{RedisStore, Warning};
use idem_test_support::RedisServer;

use crate::support;

async fn warnings(server: &RedisServer) -> Vec<Warning> {
    support::store_on(&server.url())
        .await
        .check()
        .await
        .unwrap()
        .warnings
}

#[tokio::test]
async fn a_safe_server_passes_without_a_word() {
    let server = RedisServer::start(&["--appendonly", "yes"]);
    let report = support::store_on(&server.url())
        .await
        .check()
        .await
        .unwrap();
    assert_eq!(report.warnings, []);
    assert!(
        report
            .version
            .unwrap()
            .starts_with(|c: char| c.is_ascii_digit())
    );
}

#[tokio::test]
async fn a_server_that_evicts_is_refused() {
    for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random"] {
        let server = RedisServer::start(&["--maxmemory-policy", policy, "--appendonly", "yes"]);
        let refused = support::store_on(&server.url())
            .await
            .check()
            .await
            .unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Schema);
        let text = refused.to_string();
        assert!(
            text.contains(policy) && text.contains("noeviction"),
            "{text}"
        );
        let allowed = RedisStore::builder().allow_eviction();
        let report = allowed
            .connect(server.url())
            .await
            .unwrap()
            .check()
            .await
            .unwrap();
        assert_eq!(report.warnings, [Warning::Eviction(policy.to_owned())]);
    }
}

#[tokio::test]
async fn a_server_that_forgets_is_warned_about() {
    let server = RedisServer::start(&[]);
    assert_eq!(warnings(&server).await, [Warning::NotPersistent]);
    let server = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "no"]);
    assert_eq!(warnings(&server).await, [Warning::FsyncLeftToSystem]);
}

/// Managed servers forbid `CONFIG`, some forbid `INFO` too.
#[tokio::test]
async fn what_cannot_be_asked_is_said() {
    let hidden = ["--appendonly", "yes", "--rename-command", "CONFIG", ""];
    let server = RedisServer::start(&hidden);
    let found = warnings(&server).await;
    assert!(matches!(found[..], [Warning::NotChecked(_)]), "{found:?}");
    let server = RedisServer::start(&[
        "--rename-command",
        "CONFIG",
        "",
        "--rename-command",
        "INFO",
        "",
    ]);
    let found = warnings(&server).await;
    assert!(found.len() >= 3, "{found:?}");
    assert!(
        found
            .iter()
            .all(|warning| matches!(warning, Warning::NotChecked(_))),
        "{found:?}"
    );
}

#[tokio::test]
async fn replicas_are_counted() {
    let master = RedisServer::start(&["--appendonly", "yes", "--repl-diskless-sync-delay", "0"]);
    let port = master.port().to_string();
    let _replica = RedisServer::start(&["--replicaof", "127.0.0.1", &port]);
    master.wait_until(&["INFO", "replication"], |info| {
        info.text().contains("state=online")
    });
    assert_eq!(warnings(&master).await, [Warning::ReplicationNotAwaited]);
    let two = RedisStore::builder().wait_replicas(2, Duration::from_millis(100));
    let report = two
        .connect(master.url())
        .await
        .unwrap()
        .check()
        .await
        .unwrap();
    assert_eq!(report.warnings, [Warning::TooFewReplicas(1)]);
    let one = RedisStore::builder().wait_replicas(1, Duration::from_millis(100));
    let report = one
        .connect(master.url())
        .await
        .unwrap()
        .check()
        .await
        .unwrap();
    assert_eq!(report.warnings, []);
}

#[tokio::test]
async fn a_server_that_is_down_is_unavailable() {
    let mut server = RedisServer::start(&[]);
    let store = support::store_on(&server.url()).await;
    server.kill9();
    let down = store.check().await.unwrap_err();
    assert_eq!(down.kind(), ErrorKind::StoreUnavailable);
}
