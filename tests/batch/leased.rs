//! Items with a lease: Redis and memory.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use idem::batch::{Batch, Report};
use idem::store::Store;
use idem::store::redis::RedisStore;
use idem::{ErrorKind, MemoryStore, idempotent};
use idem_test_support::child::{Args, say};
use idem_test_support::{Redis, RedisServer};
use redis::AsyncCommands as _;

use crate::support::{DAY, Failure, Fault, Item, World, items, kinds, numbers};

idem_test_support::child_roles!(dies_in_the_middle);

/// Effects, counted.
#[derive(Debug, Default)]
struct Ledger(Mutex<BTreeMap<u64, u64>>);

impl Ledger {
    fn assert_once(&self, numbers: impl IntoIterator<Item = u64>) {
        let once: BTreeMap<u64, u64> = numbers.into_iter().map(|no| (no, 1)).collect();
        assert_eq!(*self.0.lock().unwrap(), once);
    }
}

#[idempotent(
    key = "pay:{item.no}", scope = "batch.pay", shared_scope, ttl = "1d", store = store, lease = "1s",
    fingerprint(item.cents), max_outcome = "100B", companion = pay_call, on_cancel = "release"
)]
async fn pay<S: Store>(
    store: &S,
    item: &Item,
    world: &World,
    ledger: &Ledger,
) -> Result<String, Failure> {
    let answer = world.end(item.no).await?;
    *ledger.0.lock().unwrap().entry(item.no).or_default() += 1;
    Ok(answer)
}

async fn each<S: Store>(
    store: &S,
    key: &str,
    items: &[Item],
    world: &World,
    ledger: &Ledger,
) -> Result<Report<String, Failure>, idem::Error> {
    Batch::new("payouts", key, DAY)
        .concurrency(3)
        .each(store, items, pay_call::<S>, |item| {
            pay(store, item, world, ledger)
        })
        .await
}

/// Waits until these items are recorded.
async fn recorded<S: Store>(store: &S, numbers: impl IntoIterator<Item = u64>) {
    for item in items(numbers) {
        let call = pay_call::<S>(&item).unwrap();
        while !call.status(store).await.unwrap().is_done() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

async fn redis() -> RedisStore {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_nanos();
    let builder = RedisStore::builder().namespace(format!("b{}-{now}-{count}", std::process::id()));
    builder.connect(Redis::url().as_str()).await.unwrap()
}

macro_rules! on_both {
    ($($case:ident),+ $(,)?) => {
        mod in_memory {
            $(#[tokio::test]
            async fn $case() {
                super::$case(|| std::future::ready(idem::MemoryStore::new())).await;
            })+
        }
        mod on_redis {
            $(#[tokio::test]
            async fn $case() {
                super::$case(super::redis).await;
            })+
        }
    };
}

on_both!(
    bat_01_the_same_key_twice,
    bat_03_what_is_known_keeps_nothing_from_running,
    bat_04_an_item_fails_in_the_middle,
    a_batch_key_stands_for_one_list_and_a_finished_batch_is_answered_from_its_record,
);

async fn bat_01_the_same_key_twice<S: Store, F: Future<Output = S>>(open: impl Fn() -> F) {
    let (store, world, ledger) = (open().await, World::default(), Ledger::default());
    let mut list = items([1, 2, 1, 2]);
    list[3].cents = 7;
    let report = each(&store, "a", &list, &world, &ledger).await.unwrap();
    assert_eq!(
        (kinds(&report).as_str(), numbers(&report)),
        ("nnrm", vec![1, 2, 1, 0])
    );
    let report = each(&store, "b", &items([1, 1]), &world, &ledger)
        .await
        .unwrap();
    assert_eq!(kinds(&report), "rr");
    ledger.assert_once([1, 2]);
}

async fn bat_03_what_is_known_keeps_nothing_from_running<S: Store, F: Future<Output = S>>(
    open: impl Fn() -> F,
) {
    for (order, expected) in [([1, 2, 3], "rnn"), ([2, 1, 3], "nrn"), ([2, 3, 1], "nnr")] {
        let (store, world, ledger) = (open().await, World::default(), Ledger::default());
        pay(&store, &items([1])[0], &world, &ledger).await.unwrap();
        let report = each(&store, "a", &items(order), &world, &ledger)
            .await
            .unwrap();
        assert_eq!(
            (kinds(&report).as_str(), numbers(&report)),
            (expected, order.to_vec())
        );
        ledger.assert_once([1, 2, 3]);
    }
}

async fn bat_04_an_item_fails_in_the_middle<S: Store, F: Future<Output = S>>(open: impl Fn() -> F) {
    for fault in [Fault::Fails, Fault::Hangs] {
        let (store, ledger) = (open().await, Ledger::default());
        let world = World::with(3, fault);
        let list = items(1..=5);
        {
            let batch = each(&store, "a", &list, &world, &ledger);
            if fault == Fault::Fails {
                assert_eq!(kinds(&batch.await.unwrap()), "nnfnn");
            } else {
                tokio::select! {
                    report = batch => panic!("{report:?}"),
                    () = async {
                        world.hanging.notified().await;
                        // Dropped before it is recorded, what a leased call did would be done again.
                        recorded(&store, [1, 2, 4, 5]).await;
                    } => {}
                }
            }
        }
        world.heal();
        let report = each(&store, "a", &list, &world, &ledger).await.unwrap();
        assert!(report.is_finished(), "{report:?}");
        assert_eq!(numbers(&report), [1, 2, 3, 4, 5]);
        let report = each(&store, "b", &items(2..=4), &world, &ledger)
            .await
            .unwrap();
        assert_eq!(kinds(&report), "rrr");
        ledger.assert_once(1..=5);
    }
}

async fn a_batch_key_stands_for_one_list_and_a_finished_batch_is_answered_from_its_record<
    S: Store,
    F: Future<Output = S>,
>(
    open: impl Fn() -> F,
) {
    let (store, ledger) = (open().await, Ledger::default());
    let world = World::with(2, Fault::Fails);
    let report = each(&store, "a", &items([1, 2]), &world, &ledger)
        .await
        .unwrap();
    assert_eq!(kinds(&report), "nf");
    world.heal();
    let refused = each(&store, "a", &items([2, 1]), &world, &ledger).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::FingerprintMismatch);
    let report = each(&store, "a", &items([1, 2]), &world, &ledger)
        .await
        .unwrap();
    assert_eq!(kinds(&report), "rn");
    for no in [1, 2] {
        let call = pay_call::<S>(&items([no])[0]).unwrap();
        assert!(call.forget(&store).await.unwrap());
    }
    let report = each(&store, "a", &items([1, 2]), &world, &ledger)
        .await
        .unwrap();
    assert_eq!(
        (kinds(&report).as_str(), numbers(&report)),
        ("rr", vec![1, 2])
    );
    ledger.assert_once([1, 2]);
}

/// The effect is a counter on the same server; the child hangs before the effect of item 6.
#[idempotent(
    key = "pay:{item.no}", scope = "batch.count", ttl = "1d", store = store, lease = "1s",
    fingerprint(item.cents), companion = count_call
)]
async fn count(
    store: &RedisStore,
    item: &Item,
    world: &World,
    effects: &redis::aio::MultiplexedConnection,
) -> Result<String, Failure> {
    let answer = world.end(item.no).await?;
    let mut effects = effects.clone();
    let _: u64 = effects.hincr("effects", item.no, 1).await.unwrap();
    Ok(answer)
}

async fn count_each(url: &str, world: &World) -> Result<Report<String, Failure>, idem::Error> {
    let store = RedisStore::connect(url).await.unwrap();
    let client = redis::Client::open(url).unwrap();
    let effects = client.get_multiplexed_async_connection().await.unwrap();
    Batch::new("payouts", "a", DAY)
        .concurrency(2)
        .each(&store, &items(1..=10), count_call, |item| {
            count(&store, item, world, &effects)
        })
        .await
}

async fn dies_in_the_middle(args: Args) {
    let world = World::with(6, Fault::Hangs);
    tokio::select! {
        report = count_each(args.get(0), &world) => panic!("{report:?}"),
        () = async {
            world.hanging.notified().await;
            // The other worker runs out of items.
            while world.runs() < 10 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            say("in the middle");
            std::future::pending().await
        } => {}
    }
}

#[tokio::test]
async fn bat_04_kill9_in_the_middle_and_every_effect_happens_once() {
    let server = RedisServer::start(&[]);
    let mut child = child("dies_in_the_middle").arg(server.url()).spawn();
    child.wait_for("in the middle").await;
    // The answer of the last one is written down by then, or its lease outlives this process.
    let recorded = || {
        let keys = server.command(&["KEYS", "*"]).texts();
        let is_done =
            |key: &String| server.command(&["GETRANGE", key, "0", "1"]).text() == "\u{1}C";
        keys.iter()
            .filter(|key| *key != "effects")
            .filter(|key| is_done(key))
            .count()
    };
    while recorded() < 10 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    child.kill9();
    let world = World::default();
    let report = count_each(&server.url(), &world).await.unwrap();
    assert_eq!(kinds(&report), "rrrrrnrrrr");
    let effects = server.command(&["HVALS", "effects"]).texts();
    assert_eq!(effects, vec!["1"; 10]);
}

/// The call of an item has another key than its companion gave.
#[tokio::test]
async fn an_item_whose_call_has_another_key_fails() {
    let (store, world, ledger) = (MemoryStore::new(), World::default(), Ledger::default());
    let list = items([1, 2, 3]);
    let report = Batch::new("payouts", "a", DAY)
        .each(
            &store,
            &list,
            |item| pay_call::<MemoryStore>(&Item { no: 2, ..*item }),
            |item| pay(&store, item, &world, &ledger),
        )
        .await
        .unwrap();
    assert_eq!(kinds(&report), "fnf");
    let refused = report.outcomes.into_iter().next().unwrap().into_result();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::KeyMismatch);
    ledger.assert_once([2]);
}
