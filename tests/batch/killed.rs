//! A process that is killed in the middle of a batch, which is then sent again.

use idem_test_support::child::{Args, say};

use super::calls::{all, each};
use super::db::{Fresh, pool_of};
use crate::support::{Fault, World, items, kinds, numbers};

idem_test_support::child_roles!(sends_each, sends_all);

async fn sends_each(args: Args) {
    let (pool, world) = (pool_of(args.get(0)).await, World::with(6, Fault::Hangs));
    let list = items(1..=10);
    tokio::select! {
        report = each(&pool, "a", &list, &world) => panic!("{report:?}"),
        () = async {
            world.hanging.notified().await;
            say("in the middle");
            std::future::pending().await
        } => {}
    }
}

async fn sends_all(args: Args) {
    let (pool, world) = (pool_of(args.get(0)).await, World::with(6, Fault::Hangs));
    let list = items(1..=10);
    tokio::select! {
        report = all(&pool, "a", &list, &world) => panic!("{report:?}"),
        () = async {
            world.hanging.notified().await;
            say("in the middle");
            std::future::pending().await
        } => {}
    }
}

async fn killed(role: &str) -> Fresh {
    let fresh = Fresh::open().await;
    let mut child = child(role).arg(fresh.url()).spawn();
    child.wait_for("in the middle").await;
    child.kill9();
    fresh
}

#[tokio::test]
async fn bat_04_kill9_in_the_middle_and_every_effect_happens_once() {
    let fresh = killed("sends_each").await;
    let world = World::default();
    let report = each(&fresh.pool, "a", &items(1..=10), &world)
        .await
        .unwrap();
    assert!(report.is_finished(), "{report:?}");
    assert_eq!(numbers(&report), (1..=10).collect::<Vec<u64>>());
    assert!(kinds(&report).contains('n'));
    fresh.assert_once(1..=10).await;
}

#[tokio::test]
async fn bat_04_kill9_in_the_middle_of_one_transaction_leaves_nothing() {
    let fresh = killed("sends_all").await;
    fresh.assert_once([]).await;
    let world = World::default();
    let report = all(&fresh.pool, "a", &items(1..=10), &world).await.unwrap();
    assert_eq!(kinds(&report), "nnnnnnnnnn");
    fresh.assert_once(1..=10).await;
}
