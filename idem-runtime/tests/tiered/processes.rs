//! Several processes, each with its own front.

use idem_runtime::store::redis::{RedisFront, RedisStore};
use idem_runtime::store::tiered::{MemoryFront, Stack, Tier};
use idem_test_support::child::{Args, say};
use idem_test_support::{RedisServer, postgres};

use crate::support::{database, effects, owned, pay};

idem_test_support::child_roles!(repeats, caller);

/// IP-01: the front of a fresh process is empty, and says nothing about the call.
async fn repeats(args: Args) {
    let pool = postgres::pool(args.get(0), 2).await;
    let tier = Tier::new(MemoryFront::new(1 << 20));
    for _ in 0..3 {
        say(&owned(&tier, &pool, pay("7", 9)).await.unwrap().to_string());
    }
}

#[tokio::test]
async fn ip_01_a_second_process_replays() {
    let (database, pool) = database().await;
    let tier = Tier::new(MemoryFront::new(1 << 20));
    for _ in 0..2 {
        assert_eq!(owned(&tier, &pool, pay("7", 1)).await.unwrap(), 1);
    }
    let said = child("repeats").arg(database.url()).spawn().finish().await;
    assert_eq!(said, ["1", "1", "1"]);
    assert_eq!(effects(&pool, "7").await, 1);
}

async fn caller(args: Args) {
    let pool = postgres::pool(args.get(0), 4).await;
    let redis = RedisStore::builder().connect_later(args.get(1)).unwrap();
    let stack = Stack::new(MemoryFront::new(1 << 20), RedisFront::on(redis));
    let tier = Tier::new(stack);
    args.line_up().await;
    for n in 0..200 {
        let value = u64::from(std::process::id());
        let key = (n % 20).to_string();
        say(&format!(
            "{key} {}",
            owned(&tier, &pool, pay(&key, value)).await.unwrap()
        ));
    }
}

#[tokio::test]
async fn five_processes_agree_through_two_fronts() {
    let (database, pool) = database().await;
    let server = RedisServer::start(&[]);
    let said = child("caller")
        .arg(database.url())
        .arg(server.url())
        .run_many(5)
        .await;
    let mut answers: Vec<&String> = said.iter().flatten().collect();
    assert_eq!(answers.len(), 1000);
    answers.sort_unstable();
    answers.dedup();
    assert_eq!(answers.len(), 20, "one answer for each key: {answers:?}");
    for key in 0..20 {
        assert_eq!(effects(&pool, &key.to_string()).await, 1);
    }
}
