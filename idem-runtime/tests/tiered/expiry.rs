//! A front never answers from a record that is over.

use std::time::{Duration, Instant};

use idem_runtime::retention::Retention;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::tiered::{Front, MemoryFront, Stack, Tier, Tiered};
use idem_runtime::store::{Request, Reserved, Store};
use sqlx::PgPool;

use crate::redis::redis_front;
use crate::support::{Asked, SHORT, committed, database, id, kept, millis, owned};

/// Whether the record was over, by the database's clock, before the call was made.
async fn was_over(pool: &PgPool, value: u64) -> bool {
    let over: Option<bool> =
        sqlx::query_scalar("SELECT expires_at <= clock_timestamp() FROM idem_record")
            .fetch_optional(pool)
            .await
            .unwrap();
    over.unwrap_or(value == 1)
}

/// Calls as fast as it can, for the time of several retentions; each answer that was over before it
/// was asked for would be told by its number.
async fn never_late<F: Front>(tier: Tier<F>, in_own: bool) {
    let (_database, pool) = database().await;
    let (begun, mut runs, mut last, mut n) = (Instant::now(), 0, 0, 0);
    while begun.elapsed() < Duration::from_secs(3) {
        n += 1;
        let over = was_over(&pool, n).await;
        let asked = Asked {
            operation: &SHORT,
            key: "7",
            payload: 0,
            value: n,
        };
        let answer = match in_own {
            true => owned(&tier, &pool, asked).await,
            false => committed(&tier, &pool, asked).await,
        };
        let answer = answer.unwrap();
        assert!(
            !over || answer == n,
            "answered {answer} at {n} although it was over"
        );
        runs += u32::from(answer != last);
        last = answer;
    }
    assert!(runs >= 4, "it ran {runs} times only");
    assert!(n > runs.into(), "nothing was replayed");
}

#[tokio::test]
async fn a_front_never_outlives_the_record() {
    never_late(Tier::new(MemoryFront::new(1 << 20)), true).await;
    never_late(Tier::new(MemoryFront::new(1 << 20)), false).await;
}

#[tokio::test]
async fn nor_does_one_in_redis_nor_a_copy_of_that() {
    never_late(Tier::new(redis_front().await), true).await;
    let stack = Stack::new(MemoryFront::new(1 << 20), redis_front().await);
    never_late(Tier::new(stack), true).await;
}

#[tokio::test]
async fn nor_before_a_leased_store() {
    let store = Tiered::new(MemoryFront::new(1 << 20), MemoryStore::new());
    let request = || Request::new(id("7"), kept(b"").fingerprint, millis(10_000));
    let Reserved::Granted(held) = store.reserve(&request()).await.unwrap() else {
        panic!("not free");
    };
    let retention = Retention::new(millis(300)).unwrap();
    let asked = Instant::now();
    let _ = store
        .complete(&held, b"x".as_slice().into(), retention)
        .await
        .unwrap();
    let mut replays = 0;
    while let Reserved::Completed { .. } = store.reserve(&request()).await.unwrap() {
        replays += 1;
    }
    let over = asked.elapsed();
    assert!(
        replays > 10 && over >= millis(295) && over < millis(800),
        "{replays} {over:?}"
    );
}

/// What another process forgets is replayed here for `max_age` at most.
#[tokio::test]
async fn a_forgotten_record_is_replayed_elsewhere_for_its_age_at_most() {
    let (_database, pool) = database().await;
    let here = Tier::new(MemoryFront::with_max_age(1 << 20, millis(400)));
    let there = Tier::new(MemoryFront::new(1 << 20));
    let pay = |value| crate::support::pay("7", value);
    owned(&here, &pool, pay(1)).await.unwrap();
    assert!(there.forget(&pool, id("7")).await.unwrap());
    assert_eq!(
        owned(&here, &pool, pay(2)).await.unwrap(),
        1,
        "stale, as documented"
    );
    tokio::time::sleep(millis(410)).await;
    assert_eq!(owned(&here, &pool, pay(3)).await.unwrap(), 3);
}
