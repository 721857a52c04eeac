//! A front keeps outcomes, and for as long as the outcome is kept: not for its tombstone.

use idem_runtime::__private::{Operation, Scope};
use idem_runtime::ErrorKind;
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::retention::Retention;
use idem_runtime::store::filter::Filter;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::sql::LeasedSql;
use idem_runtime::store::tiered::{Front, MemoryFront, Stack, Tier, Tiered};
use idem_runtime::store::{Held, Request, Reserved, Store};
use idem_test_support::{Postgres, Redis};
use sqlx::PgPool;

use crate::redis::{namespace, redis_front};
use crate::support::{Asked, Failure, committed, database, effects, id, millis, owned, refused};

static BURIED: Operation = Operation::new(Scope::fixed("pay"))
    .retention_millis(700)
    .tombstone_millis(86_400_000);

fn pay(value: u64) -> Asked<'static> {
    Asked {
        operation: &BURIED,
        key: "7",
        payload: 0,
        value,
    }
}

async fn asked<F: Front>(tier: &Tier<F>, pool: &PgPool, in_own: bool, value: u64) -> Answer {
    match in_own {
        true => owned(tier, pool, pay(value)).await,
        false => committed(tier, pool, pay(value)).await,
    }
}

type Answer = Result<u64, Failure>;

/// Whether the outcome's own time is over, by the database's clock.
async fn is_gone(pool: &PgPool) -> bool {
    let over = sqlx::query_scalar("SELECT expires_at <= clock_timestamp() FROM idem_record");
    over.fetch_one(pool).await.unwrap()
}

/// Replayed from the front, then gone by the database, then forgotten: the front has no say in it.
async fn gone_behind<F: Front>(tier: Tier<F>, in_own: bool) {
    let (_database, pool) = database().await;
    assert_eq!(asked(&tier, &pool, in_own, 1).await.unwrap(), 1);
    // What was over before it was asked for is not replayed.
    let mut value = 1;
    let gone = loop {
        let over = is_gone(&pool).await;
        value += 1;
        match asked(&tier, &pool, in_own, value).await {
            Ok(replayed) => assert!(!over && replayed == 1, "{replayed} at {value}"),
            refusal => break refused(refusal),
        }
    };
    assert_eq!(gone, ErrorKind::OutcomeGone);
    assert!(is_gone(&pool).await && value > 2, "{value}");
    for purged in [1, 0] {
        let other = Asked {
            payload: 5,
            ..pay(0)
        };
        let other = match in_own {
            true => owned(&tier, &pool, other).await,
            false => committed(&tier, &pool, other).await,
        };
        assert_eq!(refused(other), ErrorKind::FingerprintMismatch);
        let again = asked(&tier, &pool, in_own, 0).await;
        assert_eq!(refused(again), ErrorKind::OutcomeGone);
        // What is left of it then is not taken for an outcome.
        let records = idem_runtime::store::sql::Records::default();
        assert_eq!(records.purge(&pool, 10).await.unwrap(), purged);
    }
    assert!(tier.front().get(id("7")).await.unwrap().is_none());
    assert_eq!(effects(&pool, "7").await, 1);

    assert!(tier.forget(&pool, id("7")).await.unwrap());
    assert_eq!(asked(&tier, &pool, in_own, 9).await.unwrap(), 9);
    assert_eq!(effects(&pool, "7").await, 2);
}

#[tokio::test]
async fn a12_a_front_in_memory_ends_with_the_outcome() {
    for in_own in [true, false] {
        gone_behind(Tier::new(MemoryFront::new(1 << 20)), in_own).await;
        // A filter says that the key may have been seen: it decides nothing.
        let filtered = Tier::new(MemoryFront::new(1 << 20)).filter(Filter::new(1000));
        gone_behind(filtered, in_own).await;
    }
}

#[tokio::test]
async fn a12_a_front_in_redis_ends_with_the_outcome_and_so_does_a_copy_of_it() {
    gone_behind(Tier::new(redis_front().await), true).await;
    let stack = Stack::new(MemoryFront::new(1 << 20), redis_front().await);
    gone_behind(Tier::new(stack), false).await;
}

async fn gone_in<S: Store>(store: S) {
    let mut payload = [7; 17];
    payload[0] = 1;
    let request = || Request::new(id("7"), Fingerprint::from_bytes(payload), millis(10_000));
    let front = MemoryFront::new(1 << 20);
    let store = Tiered::new(front.clone(), store);
    let Reserved::Granted(held) = store.reserve(&request()).await.unwrap() else {
        panic!("not free");
    };
    let kept = Retention::new(millis(700)).unwrap();
    let kept = kept.with_tombstone(millis(86_400_000)).unwrap();
    let done = store.complete(&held, b"paid".as_slice().into(), kept).await;
    assert_eq!(done.unwrap(), Held::Yes);
    let (mut replays, mut filled) = (0, false);
    let gone = loop {
        let over = store.store().reserve(&request()).await.unwrap() == Reserved::OutcomeGone;
        match store.reserve(&request()).await.unwrap() {
            Reserved::Completed { .. } => replays += 1,
            other => break other,
        }
        assert!(!over, "replayed what is gone");
        filled |= front.len() == 1;
    };
    assert_eq!(gone, Reserved::OutcomeGone);
    assert!(replays > 2 && filled, "{replays}");
    let _ = store.purge(10).await.unwrap();
    assert_eq!(
        store.reserve(&request()).await.unwrap(),
        Reserved::OutcomeGone
    );
    assert!(store.forget(id("7")).await.unwrap());
    let free = store.reserve(&request()).await.unwrap();
    assert!(matches!(free, Reserved::Granted(_)), "{free:?}");
}

#[tokio::test]
async fn a12_a_leased_store_behind_a_front_ends_with_the_outcome() {
    gone_in(MemoryStore::new()).await;
    let redis = RedisStore::builder().namespace(namespace());
    gone_in(redis.connect(Redis::url().as_str()).await.unwrap()).await;
    let database = Postgres::database().await;
    let leased = LeasedSql::new(database.pool(4).await);
    leased.migrate().await.unwrap();
    gone_in(leased).await;
}
