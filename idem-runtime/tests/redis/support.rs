//! What these tests share.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use idem_runtime::Error;
use idem_runtime::engine::{Entered, Run as _, contract, enter, leave, share};
use idem_runtime::fingerprint::{Fingerprint, FingerprintBuilder};
use idem_runtime::key::{KeyBuilder, RecordId};
use idem_runtime::operation::{Call, Operation};
use idem_runtime::retention::Retention;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::{Held, Request, Reservation, Reserved, Store};
use idem_test_support::{Redis, RedisCluster, RedisServer};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;

pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// A namespace that no other test has, on whatever server.
pub(crate) fn namespace() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    format!("t{}-{}-{count}", std::process::id(), since.as_nanos())
}

/// A store on the shared server, with a namespace of its own.
pub(crate) async fn store() -> RedisStore {
    let builder = RedisStore::builder().namespace(namespace());
    builder.connect(Redis::url().as_str()).await.unwrap()
}

/// A store on a server, with the defaults.
pub(crate) async fn store_on(url: &str) -> RedisStore {
    RedisStore::connect(url).await.unwrap()
}

pub(crate) async fn cluster_connection(cluster: &RedisCluster) -> ClusterConnection {
    let client = ClusterClient::new(cluster.urls()).unwrap();
    client.get_async_connection().await.unwrap()
}

/// A connection to look at what is on a server.
pub(crate) async fn raw(url: &str) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// The record of a key, as the engine would name it.
pub(crate) fn id(store: &RedisStore, key: impl ToString) -> RecordId {
    RecordId::new(store.namespace(), "test", &[], &key.to_string())
}

pub(crate) fn payload(number: u8) -> Fingerprint {
    let mut bytes = [number; 17];
    // Fingerprints of other versions are not compared.
    bytes[0] = 1;
    Fingerprint::from_bytes(bytes)
}

pub(crate) fn request(id: RecordId) -> Request<'static> {
    request_for(id, LEASE)
}

pub(crate) fn request_for(id: RecordId, lease: Duration) -> Request<'static> {
    Request::new(id, payload(1), lease)
}

pub(crate) fn hour() -> Retention {
    Retention::new(Duration::from_secs(3600)).unwrap()
}

/// Reserves a record that must be free.
pub(crate) async fn take(store: &RedisStore, request: &Request<'_>) -> Reservation {
    granted(store.reserve(request).await.unwrap())
}

pub(crate) fn granted(reserved: Reserved) -> Reservation {
    match reserved {
        Reserved::Granted(reservation) => reservation,
        other => panic!("not granted: {other:?}"),
    }
}

/// Completes a record that must be held.
pub(crate) async fn complete(store: &RedisStore, held: &Reservation, outcome: &[u8]) {
    let outcome = Bytes::copy_from_slice(outcome);
    let answer = store.complete(held, outcome, hour()).await.unwrap();
    assert_eq!(answer, Held::Yes);
}

pub(crate) fn outcome_of(reserved: &Reserved) -> &[u8] {
    match reserved {
        Reserved::Completed { outcome, .. } => outcome,
        other => panic!("not completed: {other:?}"),
    }
}

fn here() {}

/// An idempotent call, as generated code makes it.
pub(crate) async fn call<F>(
    store: &RedisStore,
    operation: &'static Operation,
    key: impl ToString,
    body: impl FnOnce() -> F,
) -> Result<u64, Error>
where
    F: Future<Output = Result<u64, Error>>,
{
    let mut parts = KeyBuilder::new("");
    parts.part(&*key.to_string());
    let payload = FingerprintBuilder::none();
    let call = Call::prepare(operation, &here, &[], parts, payload)?;
    let contract = contract::<u64, Error>();
    match enter(&mut share(store), call, &contract).await {
        Entered::Answer(answer) => answer,
        Entered::Run(run) => {
            let driven = run.driver().drive(body()).await;
            leave(&mut share(store), run, driven, &contract).await
        }
    }
}

/// No key on the server is without an end.
pub(crate) fn assert_every_key_ends(server: &RedisServer) {
    for key in server.command(&["KEYS", "*"]).texts() {
        let left = server.command(&["PTTL", &key]).number();
        // -2: it has gone meanwhile.
        assert_ne!(left, -1, "{key} has no end");
    }
}
