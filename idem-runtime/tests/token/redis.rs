//! Tokens in Redis.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idem_runtime::ErrorKind;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::token::{Reason, RedisTokens};
use idem_test_support::proxy::{Count, Direction, Proxy, Wire};
use idem_test_support::{Redis, RedisCluster, RedisServer};

use crate::world::{HOUR, WHAT, WHO, reason};

/// A namespace that no other test has.
pub(crate) fn namespace() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    format!("k{}-{}-{count}", std::process::id(), since.as_nanos())
}

/// A store on the shared server.
pub(crate) async fn store() -> RedisStore {
    let builder = RedisStore::builder().namespace(namespace());
    builder.connect(Redis::url().as_str()).await.unwrap()
}

async fn raw(url: &str) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// The name of the only token of a store.
async fn only_key(store: &RedisStore) -> String {
    use idem_runtime::store::Store as _;
    let pattern = format!("idem:{}:token:*", store.namespace());
    let mut names = Vec::<String>::new();
    let mut cursor = 0_u64;
    loop {
        let (next, more): (u64, Vec<String>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(&pattern)
            .arg("COUNT")
            .arg(1000)
            .query_async(&mut raw(&Redis::url()).await)
            .await
            .unwrap();
        names.extend(more);
        if next == 0 {
            break;
        }
        cursor = next;
    }
    assert_eq!(names.len(), 1, "{names:?}");
    names.remove(0)
}

/// The only token of a store is held no longer, as after a fail-over.
pub(crate) async fn lose_hold(store: &RedisStore) {
    let key = only_key(store).await;
    let mut gone = redis::cmd("HDEL");
    gone.arg(key).arg("owner").arg("held");
    let gone: i64 = gone
        .query_async(&mut raw(&Redis::url()).await)
        .await
        .unwrap();
    assert_eq!(gone, 2);
}

/// Asks until it is so.
pub(crate) async fn eventually(mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn tok_01_a_check_has_no_effect_and_a_consumed_token_is_used() {
    let tokens = RedisTokens::new(&store().await);
    let token = tokens.issue(WHO, WHAT, HOUR).await.unwrap();
    for _ in 0..3 {
        tokens.check(token.as_str(), WHO, WHAT).await.unwrap();
    }
    let foreign = tokens.consume(token.as_str(), "user:2", WHAT).await;
    assert_eq!(reason(foreign), Some(Reason::Foreign));
    let foreign = tokens.hold(token.as_str(), WHO, "other").await;
    assert_eq!(reason(foreign), Some(Reason::Foreign));
    tokens.consume(token.as_str(), WHO, WHAT).await.unwrap();
    for late in [
        reason(tokens.check(token.as_str(), WHO, WHAT).await),
        reason(tokens.consume(token.as_str(), WHO, WHAT).await),
        reason(tokens.hold(token.as_str(), WHO, WHAT).await),
    ] {
        assert_eq!(late, Some(Reason::Used));
    }
    let elsewhere = RedisTokens::new(&store().await);
    let unknown = elsewhere.check(token.as_str(), WHO, WHAT).await;
    assert_eq!(reason(unknown), Some(Reason::Unknown));
    let malformed = tokens.check("nonsense", WHO, WHAT).await.unwrap_err();
    assert_eq!(malformed.reason(), Some(Reason::Malformed));
    // Outside there is one text for all of them.
    assert_eq!(malformed.to_string(), "the token is not valid");
    let none = tokens.issue(WHO, WHAT, Duration::ZERO).await.unwrap_err();
    assert_eq!(none.store_error().unwrap().kind(), ErrorKind::InvalidTtl);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tok_02_of_a_hundred_parallel_consumers_one_succeeds() {
    let tokens = RedisTokens::new(&store().await);
    for holding in [false, true] {
        let token = tokens.issue(WHO, WHAT, HOUR).await.unwrap();
        let tasks = (0..100).map(|_| {
            let (tokens, token) = (tokens.clone(), token.clone());
            tokio::spawn(async move {
                if !holding {
                    return reason(tokens.consume(token.as_str(), WHO, WHAT).await);
                }
                match tokens.hold(token.as_str(), WHO, WHAT).await {
                    Ok(hold) => reason(hold.consume().await),
                    Err(error) => error.reason(),
                }
            })
        });
        let mut accepted = 0;
        for task in tasks.collect::<Vec<_>>() {
            match task.await.unwrap() {
                None => accepted += 1,
                Some(Reason::Used | Reason::InUse) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(accepted, 1);
    }
}

#[tokio::test]
async fn a_hold_is_given_back_or_used_up() {
    let tokens = RedisTokens::new(&store().await);
    let token = tokens.issue(WHO, WHAT, HOUR).await.unwrap();
    for dropped in [false, true] {
        let hold = tokens.hold(token.as_str(), WHO, WHAT).await.unwrap();
        let meanwhile = tokens.consume(token.as_str(), WHO, WHAT).await;
        assert_eq!(reason(meanwhile), Some(Reason::InUse));
        if dropped {
            drop(hold);
            let free = async || tokens.check(token.as_str(), WHO, WHAT).await.is_ok();
            eventually(free).await;
        } else {
            hold.give_back().await.unwrap();
            tokens.check(token.as_str(), WHO, WHAT).await.unwrap();
        }
    }
    let hold = tokens.hold(token.as_str(), WHO, WHAT).await.unwrap();
    let used = hold.consume().await.unwrap();
    assert_eq!(used.id().as_bytes().len(), 16);
    let late = tokens.consume(token.as_str(), WHO, WHAT).await;
    assert_eq!(reason(late), Some(Reason::Used));
}

/// A hold whose end is dropped midway ends all the same, and as it was meant to.
#[tokio::test]
async fn a_dropped_end_of_a_hold_is_carried_out() {
    let tokens = RedisTokens::new(&store().await);
    for polls in 1..4 {
        let token = tokens.issue(WHO, WHAT, HOUR).await.unwrap();
        let hold = tokens.hold(token.as_str(), WHO, WHAT).await.unwrap();
        let _ = idem_test_support::poll::drop_after(hold.consume(), polls).await;
        let used =
            async || reason(tokens.check(token.as_str(), WHO, WHAT).await) == Some(Reason::Used);
        eventually(used).await;
    }
}

#[tokio::test]
async fn a_token_expires_by_the_clock_of_the_server_and_its_key_goes() {
    let store = store().await;
    let tokens = RedisTokens::new(&store);
    let ttl = Duration::from_millis(300);
    let token = tokens.issue(WHO, WHAT, ttl).await.unwrap();
    let hold = tokens.hold(token.as_str(), WHO, WHAT).await.unwrap();
    let expired =
        async || reason(tokens.check(token.as_str(), WHO, WHAT).await) == Some(Reason::Expired);
    eventually(expired).await;
    let late = tokens.consume(token.as_str(), WHO, WHAT).await;
    assert_eq!(reason(late), Some(Reason::Expired));
    // Who had it in time may finish.
    hold.consume().await.unwrap();

    let key = only_key(&store).await;
    let left: i64 = redis::cmd("PTTL")
        .arg(key)
        .query_async(&mut raw(&Redis::url()).await)
        .await
        .unwrap();
    assert!((1..=3_600_300).contains(&left), "{left}");
}

#[tokio::test]
async fn a_withdrawn_token_is_unknown() {
    let tokens = RedisTokens::new(&store().await);
    let token = tokens.issue(WHO, WHAT, HOUR).await.unwrap();
    let hold = tokens.hold(token.as_str(), WHO, WHAT).await.unwrap();
    assert!(tokens.withdraw(token.as_str()).await.unwrap());
    assert!(!tokens.withdraw(token.as_str()).await.unwrap());
    let late = tokens.consume(token.as_str(), WHO, WHAT).await;
    assert_eq!(reason(late), Some(Reason::Unknown));
    hold.consume().await.unwrap();
}

/// What is stored outlives a build; and nobody who reads it can make a token of it.
#[tokio::test]
async fn stored_tokens_are_what_they_were() {
    let store = store().await;
    let tokens = RedisTokens::new(&store);
    let token = tokens.issue("user:1", "reset", HOUR).await.unwrap();
    let key = only_key(&store).await;
    assert!(!key.contains(token.as_str()));
    let mut look = redis::cmd("HGETALL");
    look.arg(&key);
    let mut conn = raw(&Redis::url()).await;
    let fresh: std::collections::BTreeMap<String, Vec<u8>> =
        look.query_async(&mut conn).await.unwrap();
    let names: Vec<&str> = fresh.keys().map(String::as_str).collect();
    assert_eq!(names, ["for", "until"]);
    let belongs: String = fresh["for"].iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(belongs, "c61fa8f1535a3bbd04e08258d89e3a54");
    let until = String::from_utf8(fresh["until"].clone()).unwrap();
    assert_eq!(until.len(), 13, "{until}");

    let hold = tokens
        .hold(token.as_str(), "user:1", "reset")
        .await
        .unwrap();
    hold.consume().await.unwrap();
    let used: std::collections::BTreeMap<String, Vec<u8>> =
        look.query_async(&mut conn).await.unwrap();
    let names: Vec<&str> = used.keys().map(String::as_str).collect();
    assert_eq!(names, ["for", "held", "owner", "until", "used"]);
    assert_eq!((used["used"].len(), &used["used"]), (16, &used["owner"]));
}

/// A server that knows no script, and one that is full.
#[tokio::test]
async fn a_restarted_and_a_full_server_do_as_they_promise() {
    let mut server = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let tokens = RedisTokens::new(&store);
    let token = tokens.issue(WHO, WHAT, HOUR).await.unwrap();
    let other = tokens.issue(WHO, WHAT, HOUR).await.unwrap();
    let hold = tokens.hold(token.as_str(), WHO, WHAT).await.unwrap();
    server.kill9();
    server.restart();
    let meanwhile = tokens.consume(token.as_str(), WHO, WHAT).await;
    assert_eq!(reason(meanwhile), Some(Reason::InUse));

    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let full = tokens.hold(other.as_str(), WHO, WHAT).await.unwrap_err();
    let full = full.store_error().unwrap();
    assert_eq!(full.kind(), ErrorKind::StoreExhausted);
    tokens.check(other.as_str(), WHO, WHAT).await.unwrap();
    // What runs is let through.
    hold.consume().await.unwrap();
    let late = tokens.check(token.as_str(), WHO, WHAT).await;
    assert_eq!(reason(late), Some(Reason::Used));
}

/// Answers that are lost: the step is sent again, and says the same.
#[tokio::test]
async fn a_step_whose_answer_is_lost_is_one_step() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(("127.0.0.1", server.port()), Wire::Raw);
    let url = format!("redis://{}", proxy.addr());
    let store = RedisStore::connect(&url).await.unwrap();
    let tokens = RedisTokens::new(&store);
    let lost = || proxy.cut_after(Direction::ToClient, Count::Bytes(1));
    // So that every script is known: one answer is one step.
    let warm = tokens.issue(WHO, WHAT, HOUR).await.unwrap();
    let hold = tokens.hold(warm.as_str(), WHO, WHAT).await.unwrap();
    hold.give_back().await.unwrap();

    let armed = lost();
    let token = tokens.issue(WHO, WHAT, HOUR).await.unwrap();
    assert!(armed.fired());
    let armed = lost();
    let hold = tokens.hold(token.as_str(), WHO, WHAT).await.unwrap();
    assert!(armed.fired());
    let armed = lost();
    hold.consume().await.unwrap();
    assert!(armed.fired());
    let late = tokens.check(token.as_str(), WHO, WHAT).await;
    assert_eq!(reason(late), Some(Reason::Used));

    let token = tokens.issue(WHO, WHAT, HOUR).await.unwrap();
    let armed = lost();
    tokens.consume(token.as_str(), WHO, WHAT).await.unwrap();
    assert!(armed.fired());
}

/// One key a token: nodes of a cluster share them, and slots may move.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_live_in_a_cluster() {
    let cluster = RedisCluster::start(3);
    let client = redis::cluster::ClusterClient::new(cluster.urls()).unwrap();
    let connection = client.get_async_connection().await.unwrap();
    let tokens = RedisTokens::new(&RedisStore::builder().build(connection).unwrap());
    for _ in 0..30 {
        let token = tokens.issue(WHO, WHAT, HOUR).await.unwrap();
        tokens.check(token.as_str(), WHO, WHAT).await.unwrap();
        let hold = tokens.hold(token.as_str(), WHO, WHAT).await.unwrap();
        hold.give_back().await.unwrap();
        tokens.consume(token.as_str(), WHO, WHAT).await.unwrap();
        let late = tokens.hold(token.as_str(), WHO, WHAT).await;
        assert_eq!(reason(late), Some(Reason::Used));
    }
    for node in cluster.nodes() {
        assert!(node.command(&["DBSIZE"]).number() > 0);
    }
}
