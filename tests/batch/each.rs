//! Every item by itself.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use idem::ErrorKind;
use idem::batch::Batch;

use super::calls::{each, pay, pay_call};
use super::db::{Fresh, NAME};
use crate::support::{DAY, Fault, Item, World, items, kinds, numbers};

#[tokio::test]
async fn bat_01_the_same_key_twice() {
    let (fresh, world) = (Fresh::open().await, World::default());
    let report = each(&fresh.pool, "a", &items([1, 2, 1]), &world)
        .await
        .unwrap();
    assert_eq!(
        (kinds(&report).as_str(), numbers(&report)),
        ("nnr", vec![1, 2, 1])
    );
    assert_eq!(report.outcomes[0].value(), report.outcomes[2].value());
    let report = each(&fresh.pool, "b", &items([1, 1]), &world)
        .await
        .unwrap();
    assert_eq!(
        (kinds(&report).as_str(), numbers(&report)),
        ("rr", vec![1, 1])
    );
    // Another payload, before, between and behind.
    let mut mixed = items([3, 3, 1, 3]);
    mixed[1].cents = 7;
    mixed[2].cents = 7;
    let report = each(&fresh.pool, "c", &mixed, &world).await.unwrap();
    assert_eq!(
        (kinds(&report).as_str(), numbers(&report)),
        ("nmmr", vec![3, 0, 0, 3])
    );
    assert!(!report.is_finished());
    let unfinished: Vec<usize> = report.unfinished().map(|(index, _)| index).collect();
    assert_eq!(unfinished, [1, 2]);
    for outcome in report.outcomes.into_iter().skip(1).take(2) {
        let error = outcome.into_result().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FingerprintMismatch);
    }
    fresh.assert_once([1, 2, 3]).await;
    assert_eq!(world.runs(), 3);
}

#[tokio::test]
async fn bat_03_what_is_known_keeps_nothing_from_running() {
    for (round, (order, expected)) in [([1, 2, 3], "rnn"), ([2, 1, 3], "nrn"), ([2, 3, 1], "nnr")]
        .into_iter()
        .enumerate()
    {
        let (fresh, world) = (Fresh::open().await, World::default());
        pay(&fresh.pool, &items([1])[0], &world).await.unwrap();
        let report = each(&fresh.pool, &round.to_string(), &items(order), &world)
            .await
            .unwrap();
        assert_eq!(
            (kinds(&report).as_str(), numbers(&report)),
            (expected, order.to_vec())
        );
        assert!(report.is_finished());
        fresh.assert_once([1, 2, 3]).await;
    }
}

/// What is done is kept, what failed runs again, and what was not reached runs.
#[tokio::test]
async fn bat_04_an_item_fails_in_the_middle() {
    for fault in [Fault::Fails, Fault::TooLarge, Fault::Panics, Fault::Hangs] {
        let fresh = Fresh::open().await;
        let world = World::with(3, fault);
        let list = items(1..=5);
        {
            let batch = each(&fresh.pool, "a", &list, &world);
            match fault {
                Fault::Fails | Fault::TooLarge => {
                    let report = batch.await.unwrap();
                    assert_eq!(kinds(&report), "nnfnn", "{fault:?}");
                }
                Fault::Panics => {
                    let panic = AssertUnwindSafe(batch).catch_unwind().await.unwrap_err();
                    assert_eq!(*panic.downcast::<String>().unwrap(), "item 3 panics");
                    // The others ran to their end.
                    fresh.assert_once([1, 2, 4, 5]).await;
                }
                Fault::Hangs => tokio::select! {
                    report = batch => panic!("{report:?}"),
                    () = async {
                        world.hanging.notified().await;
                        // The driver cannot go on after a statement that was dropped on the wire.
                        while NAME == "mysql" && fresh.effects().await.len() < 4 {
                            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                        }
                    } => {}
                },
            }
        }
        world.heal();
        let report = each(&fresh.pool, "a", &list, &world).await.unwrap();
        assert!(report.is_finished(), "{fault:?}: {report:?}");
        assert_eq!(numbers(&report), [1, 2, 3, 4, 5]);
        if fault != Fault::Hangs {
            assert_eq!(kinds(&report), "rrnrr", "{fault:?}");
        }
        let report = each(&fresh.pool, "b", &items(2..=4), &world).await.unwrap();
        assert_eq!(
            (kinds(&report).as_str(), numbers(&report)),
            ("rrr", vec![2, 3, 4])
        );
        fresh.assert_once(1..=5).await;
    }
}

#[tokio::test]
async fn a_batch_key_stands_for_one_list() {
    let fresh = Fresh::open().await;
    let world = World::with(2, Fault::Fails);
    // Not finished, and all the same this list.
    let report = each(&fresh.pool, "a", &items([1, 2]), &world)
        .await
        .unwrap();
    assert_eq!(kinds(&report), "nf");
    world.heal();
    let runs = world.runs();
    for other in [vec![1], vec![2, 1], vec![1, 2, 3], vec![], vec![1, 2, 2]] {
        let refused = each(&fresh.pool, "a", &items(other), &world).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::FingerprintMismatch);
    }
    assert_eq!(world.runs(), runs);
    let report = each(&fresh.pool, "a", &items([1, 2]), &world)
        .await
        .unwrap();
    assert_eq!(kinds(&report), "rn");
    let refused = each(&fresh.pool, "a", &items([1]), &world).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::FingerprintMismatch);
    // An empty list is a list.
    let report = each(&fresh.pool, "empty", &[], &world).await.unwrap();
    assert!(report.is_finished() && report.outcomes.is_empty());
    fresh.assert_once([1, 2]).await;
}

#[tokio::test]
async fn a_finished_batch_is_answered_from_its_record() {
    let (fresh, world) = (Fresh::open().await, World::default());
    let first = each(&fresh.pool, "a", &items([1, 2, 1]), &world)
        .await
        .unwrap();
    let gone = fresh
        .run("DELETE FROM idem_record WHERE scope = 'batch.pay'")
        .await;
    assert_eq!(gone, 2);
    let again = each(&fresh.pool, "a", &items([1, 2, 1]), &world)
        .await
        .unwrap();
    assert_eq!(kinds(&again), "rrr");
    for (first, again) in first.outcomes.iter().zip(&again.outcomes) {
        assert_eq!(first.value(), again.value());
    }
    assert_eq!(world.runs(), 2);
    // The list of a batch key that has expired may be another one, with a record of its own.
    fresh
        .run("DELETE FROM idem_record WHERE scope = 'idem.batch'")
        .await;
    for expected in ["n", "r"] {
        let other = each(&fresh.pool, "a", &items([5]), &world).await.unwrap();
        assert_eq!(
            (kinds(&other).as_str(), numbers(&other)),
            (expected, vec![5])
        );
        fresh
            .run("DELETE FROM idem_record WHERE scope = 'batch.pay'")
            .await;
    }
}

#[tokio::test]
async fn keys_are_checked_before_anything_is_written() {
    use idem::idempotent;

    use crate::support::{DAY, Failure};

    #[idempotent(key = "{text}", ttl = "1d", store = pool, tx = tx, companion = text_call)]
    async fn text(pool: &super::db::Pool, text: &str) -> Result<String, Failure> {
        let _ = tx;
        panic!("{text} is called")
    }
    let fresh = Fresh::open().await;
    let long = "x".repeat(70_000);
    for (key, list, kind) in [
        ("a", ["1", ""], ErrorKind::EmptyKeyPart),
        ("a", ["1", &long], ErrorKind::KeyTooLong),
        ("", ["1", "2"], ErrorKind::EmptyKeyPart),
        (&long, ["1", "2"], ErrorKind::KeyTooLong),
    ] {
        let batch = Batch::new("texts", key, DAY);
        let report = batch.each(
            &fresh.pool,
            &list,
            |item| text_call(item),
            |item| text(&fresh.pool, item),
        );
        assert_eq!(report.await.unwrap_err().kind(), kind);
    }
    assert_eq!(fresh.run("DELETE FROM idem_record").await, 0);
}

/// Also: the future may be spawned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_batch_sent_many_times_at_once() {
    let (fresh, world) = (Fresh::open().await, Arc::new(World::default()));
    let sent = (0..4).map(|_| {
        let (pool, world) = (fresh.pool.clone(), Arc::clone(&world));
        tokio::spawn(async move { each(&pool, "a", &items(1..=10), &world).await })
    });
    let sent: Vec<_> = sent.collect();
    for report in sent {
        let report = report.await.unwrap().unwrap();
        assert!(report.is_finished(), "{report:?}");
        assert_eq!(numbers(&report), (1..=10).collect::<Vec<u64>>());
    }
    fresh.assert_once(1..=10).await;
    assert_eq!(world.runs(), 10);
    let one = Item { no: 1, cents: 100 };
    assert!(pay(&fresh.pool, &one, &world).await.is_ok());
}

/// The keys are the same, and the finished batch would answer for them.
#[tokio::test]
async fn a_finished_batch_does_not_answer_for_other_contents() {
    let (fresh, world) = (Fresh::open().await, World::default());
    let send = async |list: &[Item]| {
        let batch = Batch::new("payouts", "told", DAY).contents(list).unwrap();
        batch
            .each(&fresh.pool, list, pay_call, |item| {
                pay(&fresh.pool, item, &world)
            })
            .await
    };
    let mut list = items([1, 2]);
    assert_eq!(kinds(&send(&list).await.unwrap()), "nn");
    assert_eq!(kinds(&send(&list).await.unwrap()), "rr");
    list[1].cents += 1;
    let other = send(&list).await;
    assert_eq!(other.unwrap_err().kind(), ErrorKind::FingerprintMismatch);
    fresh.assert_once([1, 2]).await;
}
