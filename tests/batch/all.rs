//! All items or none.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use idem::ErrorKind;
use idem::batch::{Batch, BatchError, BatchStatus};

use super::calls::{all, all_in, each, other_call, pay, pay_call, pay_in};
use super::db::{Fresh, NAME, begin, effect};
use crate::support::{DAY, Failure, Fault, Item, World, items, kinds, numbers};

#[track_caller]
fn item<T: std::fmt::Debug>(answer: Result<T, BatchError<Failure>>) -> (usize, bool, Failure) {
    match answer.unwrap_err() {
        BatchError::Item {
            index,
            mismatch,
            error,
            ..
        } => (index, mismatch, error),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, BatchError<Failure>>) -> ErrorKind {
    match answer.unwrap_err() {
        BatchError::Batch(error) => error.kind(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn bat_01_the_same_key_twice() {
    let (fresh, world) = (Fresh::open().await, World::default());
    let report = all(&fresh.pool, "a", &items([1, 2, 1]), &world)
        .await
        .unwrap();
    assert_eq!(
        (kinds(&report).as_str(), numbers(&report)),
        ("nnr", vec![1, 2, 1])
    );
    let report = all(&fresh.pool, "b", &items([1, 1]), &world).await.unwrap();
    assert_eq!(kinds(&report), "rr");
    // With another payload nothing of the batch is done.
    let mut mixed = items([4, 3, 3]);
    mixed[2].cents = 7;
    let (index, mismatch, error) = item(all(&fresh.pool, "c", &mixed, &world).await);
    assert_eq!((index, mismatch), (2, true));
    assert_eq!(error.kind(), ErrorKind::FingerprintMismatch);
    fresh.assert_once([1, 2]).await;
}

#[tokio::test]
async fn bat_03_what_is_known_keeps_nothing_from_running() {
    for (order, expected) in [([1, 2, 3], "rnn"), ([2, 1, 3], "nrn"), ([2, 3, 1], "nnr")] {
        let (fresh, world) = (Fresh::open().await, World::default());
        pay(&fresh.pool, &items([1])[0], &world).await.unwrap();
        let report = all(&fresh.pool, "a", &items(order), &world).await.unwrap();
        assert_eq!(
            (kinds(&report).as_str(), numbers(&report)),
            (expected, order.to_vec())
        );
        fresh.assert_once([1, 2, 3]).await;
    }
}

#[tokio::test]
async fn bat_04_an_item_fails_in_the_middle() {
    for fault in [Fault::Fails, Fault::TooLarge, Fault::Panics, Fault::Hangs] {
        let fresh = Fresh::open().await;
        let world = World::with(3, fault);
        let list = items(1..=5);
        {
            let batch = all(&fresh.pool, "a", &list, &world);
            match fault {
                Fault::Fails => {
                    let (index, mismatch, error) = item(batch.await);
                    assert_eq!((index, mismatch), (2, false));
                    assert!(matches!(error, Failure::Busy));
                }
                Fault::TooLarge => {
                    assert_eq!(item(batch.await).2.kind(), ErrorKind::OutcomeTooLarge);
                }
                Fault::Panics => {
                    AssertUnwindSafe(batch).catch_unwind().await.unwrap_err();
                }
                Fault::Hangs => tokio::select! {
                    report = batch => panic!("{report:?}"),
                    () = world.hanging.notified() => {}
                },
            }
        }
        fresh.assert_once([]).await;
        assert_eq!(fresh.run("DELETE FROM idem_record").await, 0, "{fault:?}");
        world.heal();
        let report = all(&fresh.pool, "a", &list, &world).await.unwrap();
        assert_eq!(
            (kinds(&report).as_str(), numbers(&report)),
            ("nnnnn", vec![1, 2, 3, 4, 5])
        );
        // Item by item they are the same calls.
        let report = each(&fresh.pool, "b", &items(2..=4), &world).await.unwrap();
        assert_eq!(kinds(&report), "rrr");
        fresh.assert_once(1..=5).await;
    }
}

#[tokio::test]
async fn a_batch_key_stands_for_one_list_and_a_batch_is_answered_from_its_record() {
    let (fresh, world) = (Fresh::open().await, World::default());
    let first = all(&fresh.pool, "a", &items([2, 1]), &world).await.unwrap();
    for other in [vec![1, 2], vec![2], vec![]] {
        let answer = all(&fresh.pool, "a", &items(other), &world).await;
        assert_eq!(refused(answer), ErrorKind::FingerprintMismatch);
    }
    let gone = fresh
        .run("DELETE FROM idem_record WHERE scope = 'batch.pay'")
        .await;
    assert_eq!(gone, 2);
    let again = all(&fresh.pool, "a", &items([2, 1]), &world).await.unwrap();
    assert_eq!(
        (kinds(&again).as_str(), numbers(&again)),
        ("rr", vec![2, 1])
    );
    assert_eq!(first.outcomes[0].value(), again.outcomes[0].value());
    assert_eq!(world.runs(), 2);
}

#[tokio::test]
async fn in_the_callers_transaction_the_caller_decides() {
    let (fresh, world) = (Fresh::open().await, World::default());
    let mut tx = begin(&fresh.pool).await;
    let report = all_in(&mut tx, "a", &items([2, 1]), &world).await.unwrap();
    assert_eq!(
        (kinds(&report).as_str(), numbers(&report)),
        ("nn", vec![2, 1])
    );
    tx.rollback().await.unwrap();
    fresh.assert_once([]).await;
    for expected in ["nn", "rr"] {
        let mut tx = begin(&fresh.pool).await;
        let report = all_in(&mut tx, "a", &items([2, 1]), &world).await.unwrap();
        assert_eq!(kinds(&report), expected);
        tx.commit().await.unwrap();
    }
    fresh.assert_once([1, 2]).await;
}

/// The caller swallows the error and commits: nothing of the batch is left, what was before it stays.
#[tokio::test]
async fn half_a_batch_is_not_committed() {
    let fresh = Fresh::open().await;
    let world = World::with(2, Fault::Fails);
    let list = items([1, 2, 3]);
    let mut tx = begin(&fresh.pool).await;
    effect(&mut tx, 9).await.unwrap();
    let (index, ..) = item(all_in(&mut tx, "a", &list, &world).await);
    assert_eq!(index, 1);
    tx.commit().await.unwrap();
    fresh.assert_once([9]).await;
    let batch = Batch::new("payouts", "a", DAY);
    assert_eq!(
        batch.status(&fresh.pool).await.unwrap(),
        BatchStatus::Absent
    );
    world.heal();
    let report = all(&fresh.pool, "a", &list, &world).await.unwrap();
    assert_eq!(kinds(&report), "nnn");
    fresh.assert_once([1, 2, 3, 9]).await;
}

/// Dropped in the middle, and its caller commits.
#[tokio::test]
async fn half_a_batch_that_was_dropped_is_not_committed() {
    if NAME == "mysql" {
        // The driver cannot go on after a statement that was dropped.
        return;
    }
    let fresh = Fresh::open().await;
    let world = World::with(2, Fault::Hangs);
    let mut tx = begin(&fresh.pool).await;
    let list = items([1, 2, 3]);
    tokio::select! {
        report = all_in(&mut tx, "a", &list, &world) => panic!("{report:?}"),
        () = world.hanging.notified() => {}
    }
    tx.commit().await.unwrap_err();
    fresh.assert_once([]).await;
}

/// The call of an item has another key than its companion gave.
#[tokio::test]
async fn an_item_whose_call_has_another_key_is_refused() {
    let (fresh, world) = (Fresh::open().await, &World::default());
    let list = items([1, 2]);
    let batch = Batch::new("payouts", "a", DAY);
    let answer = batch
        .all(
            &fresh.pool,
            &list,
            |item| {
                pay_call(&Item {
                    no: item.no + 10,
                    ..*item
                })
            },
            |mut tx, item| async move { pay_in(&mut tx, item, world).await },
        )
        .await;
    assert_eq!(self::item(answer).2.kind(), ErrorKind::KeyMismatch);
    // The companion of another function.
    let answer = batch
        .all(&fresh.pool, &list, other_call, |mut tx, item| async move {
            pay_in(&mut tx, item, world).await
        })
        .await;
    assert_eq!(self::item(answer).2.kind(), ErrorKind::KeyMismatch);
    assert_eq!(world.runs(), 0);
    fresh.assert_once([]).await;
    assert_eq!(fresh.run("DELETE FROM idem_record").await, 0);
}

/// `all` and `each` keep their keys apart, and both are forgotten.
#[tokio::test]
async fn a_batch_is_asked_for_and_forgotten_and_its_items_are_not() {
    let (fresh, world) = (Fresh::open().await, World::default());
    let batch = Batch::new("payouts", "a", DAY);
    let status = async || batch.status(&fresh.pool).await.unwrap();
    assert_eq!(status().await, BatchStatus::Absent);
    assert!(!batch.forget(&fresh.pool).await.unwrap());
    let mut tx = begin(&fresh.pool).await;
    let _ = all_in(&mut tx, "a", &items([1, 2]), &world).await.unwrap();
    assert_eq!(batch.status(&mut tx).await.unwrap(), BatchStatus::Finished);
    tx.commit().await.unwrap();
    assert_eq!(status().await, BatchStatus::Finished);
    assert!(batch.forget(&fresh.pool).await.unwrap());
    assert_eq!(status().await, BatchStatus::Absent);
    // Another list under the same key; what is done is replayed.
    let report = all(&fresh.pool, "a", &items([2, 3]), &world).await.unwrap();
    assert_eq!(kinds(&report), "rn");
    assert!(batch.forget(&fresh.pool).await.unwrap());

    let failing = World::with(5, Fault::Fails);
    let report = each(&fresh.pool, "a", &items([4, 5]), &failing).await;
    assert_eq!(kinds(&report.unwrap()), "nf");
    assert_eq!(status().await, BatchStatus::Begun);
    let report = each(&fresh.pool, "a", &items([4, 5]), &world).await;
    assert!(report.unwrap().is_finished());
    assert_eq!(status().await, BatchStatus::Finished);
    let other = each(&fresh.pool, "a", &items([5, 6]), &world).await;
    assert_eq!(other.unwrap_err().kind(), ErrorKind::FingerprintMismatch);
    assert!(batch.forget(&fresh.pool).await.unwrap());
    assert_eq!(status().await, BatchStatus::Absent);
    let report = each(&fresh.pool, "a", &items([5, 6]), &world).await;
    assert_eq!(kinds(&report.unwrap()), "rn");
    fresh.assert_once(1..=6).await;
}

/// Two batches with the same items in opposite order, again and again: they wait for each other and do
/// not deadlock, since they reserve in one order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_batches_in_opposite_order_do_not_deadlock() {
    let (fresh, world) = (Fresh::open().await, Arc::new(World::default()));
    for round in 0..10_u64 {
        let numbers: Vec<u64> = (round * 10..round * 10 + 10).collect();
        let sent = ["a", "b", "c"].map(|name| {
            let (pool, world) = (fresh.pool.clone(), Arc::clone(&world));
            let mut numbers = numbers.clone();
            match name {
                "a" => {}
                "b" => numbers.reverse(),
                _ => numbers.rotate_left(5),
            }
            tokio::spawn(async move {
                all(&pool, &format!("{name}{round}"), &items(numbers), &world).await
            })
        });
        for report in sent {
            let report = report.await.unwrap().unwrap();
            assert!(report.is_finished());
        }
    }
    fresh.assert_once(0..100).await;
    assert_eq!(world.runs(), 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_callers_transaction_it_may_be_spawned() {
    let (fresh, world) = (Fresh::open().await, World::default());
    let pool = fresh.pool.clone();
    let done = tokio::spawn(async move {
        let mut tx = begin(&pool).await;
        let report = all_in(&mut tx, "a", &items([1]), &world).await;
        tx.commit().await.unwrap();
        report.unwrap().is_finished()
    });
    assert!(done.await.unwrap());
    fresh.assert_once([1]).await;
}

/// The keys are the same, and the finished batch would answer for them.
#[tokio::test]
async fn a_finished_batch_does_not_answer_for_other_contents() {
    let (fresh, world) = (Fresh::open().await, &World::default());
    let send = async |list: &[Item]| {
        let batch = Batch::new("payouts", "told", DAY).contents(list).unwrap();
        batch
            .all(&fresh.pool, list, pay_call, |mut tx, item| async move {
                pay_in(&mut tx, item, world).await
            })
            .await
    };
    let mut list = items([1, 2]);
    assert_eq!(kinds(&send(&list).await.unwrap()), "nn");
    assert_eq!(kinds(&send(&list).await.unwrap()), "rr");
    list[1].cents += 1;
    let other = send(&list).await;
    assert_eq!(refused(other), ErrorKind::FingerprintMismatch);
    fresh.assert_once([1, 2]).await;
}
