//! Steps that hang.

use std::time::Duration;

use idem_runtime::steps::{Cause, SagaDialect, SagaError, SagaState, StepOptions};

use crate::shop::{ALL_DONE, Do, Shop, assert_all_undone, effects, key, order, saga, steps};
use crate::world::{World, on_each};

on_each!(
    a_step_that_hangs_is_dropped_and_tried_again
    a_compensation_that_hangs_is_dropped_and_tried_again
    a_step_that_always_hangs_needs_a_person_and_is_unknown
    a_worker_stops_within_its_grace_although_a_step_hangs
    a_worker_that_is_told_to_stop_lets_its_sagas_go_between_two_attempts
);

const SHORT: Duration = Duration::from_millis(500);

fn hasty(step: &str) -> (&str, StepOptions) {
    (step, StepOptions::new().timeout(SHORT))
}

async fn a_step_that_hangs_is_dropped_and_tried_again<D: SagaDialect>(world: World<D>) {
    let points = ["before:charge", "after:charge", "before:book", "after:book"];
    for (no, point) in (1..).zip(points) {
        let shop = Shop::new(&world.pool);
        shop.at(point, Do::Hang, 1);
        let (_, step) = point.split_once(':').unwrap();
        let (name, options) = hasty(step);
        let saga = steps(&shop)
            .configure(name, options)
            .build(&world.pool)
            .unwrap();
        let _ = saga.start(&key(no), &order(no)).await.unwrap();
        assert_eq!(shop.times(&format!("before:{step}")), 2, "{point}");
        assert_eq!(effects(&world.pool, no).await, ALL_DONE, "{point}");
        let status = saga.status(&key(no)).await.unwrap().unwrap();
        for known in &status.steps {
            let attempts = if known.name == step { 2 } else { 1 };
            assert_eq!(known.attempts, attempts, "{point}: {}", known.name);
        }
    }
}

async fn a_compensation_that_hangs_is_dropped_and_tried_again<D: SagaDialect>(world: World<D>) {
    for (no, step) in (1..).zip(["charge", "book"]) {
        let shop = Shop::new(&world.pool);
        shop.at("before:ship", Do::Refuse, 1)
            .at(&format!("undo-before:{step}"), Do::Hang, 1);
        let (name, options) = hasty(step);
        let saga = steps(&shop)
            .configure(name, options)
            .build(&world.pool)
            .unwrap();
        let undone = saga.start(&key(no), &order(no)).await;
        assert!(
            matches!(undone, Err(SagaError::Compensated(_))),
            "{undone:?}"
        );
        let expected = [(1, 1), (1, 1), (1, 1), (0, 0)];
        assert_eq!(effects(&world.pool, no).await, expected, "{step}");
    }
}

async fn a_step_that_always_hangs_needs_a_person_and_is_unknown<D: SagaDialect>(world: World<D>) {
    for (no, step) in (1..).zip(["charge", "book"]) {
        let shop = Shop::new(&world.pool);
        let point = format!("after:{step}");
        shop.at(&point, Do::Hang, u32::MAX);
        let saga = steps(&shop).timeout(SHORT).build(&world.pool).unwrap();
        let mut ended = saga.start(&key(no), &order(no)).await;
        while let Err(SagaError::Waiting(left)) = &ended {
            assert_eq!(left.cause, Cause::TimedOut);
            assert!(left.error.contains("time-out of 500ms"), "{}", left.error);
            world.let_time_pass().await;
            ended = saga.start(&key(no), &order(no)).await;
        }
        let Err(SagaError::Stuck(left)) = &ended else {
            panic!("{ended:?}");
        };
        assert_eq!(
            (left.step.as_deref(), left.cause),
            (Some(step), Cause::TimedOut)
        );
        saga.cancel(&key(no)).await.unwrap();
        let effects = effects(&world.pool, no).await;
        assert_all_undone(&effects);
        // What hangs elsewhere may have happened, what hangs in a transaction has not.
        let undone = if step == "charge" { (1, 1) } else { (0, 0) };
        assert_eq!(effects[if step == "charge" { 1 } else { 2 }], undone);
    }
}

async fn a_worker_stops_within_its_grace_although_a_step_hangs<D: SagaDialect>(world: World<D>) {
    for (no, step) in (1..).zip(["charge", "book"]) {
        let shop = Shop::new(&world.pool);
        shop.at(&format!("before:{step}"), Do::Retry, 2);
        let saga = saga(&shop);
        let _ = saga.start(&key(no), &order(no)).await.unwrap_err();
        shop.at(&format!("before:{step}"), Do::Hang, 1);
        world.let_time_pass().await;
        let before = shop.times(&format!("before:{step}"));
        let worker = saga.worker().grace(SHORT);
        let stop = async {
            while shop.times(&format!("before:{step}")) == before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // The step's own time-out is five minutes.
        let stopped = tokio::time::timeout(
            Duration::from_secs(60),
            worker.run_until(stop, Duration::from_secs(1)),
        );
        stopped.await.unwrap();
        world.let_time_pass().await;
        for _ in 0..600 {
            let resumed = saga.worker().run_once().await.unwrap();
            if resumed.iter().any(|one| one.outcome.is_ok()) {
                break;
            }
            // On MariaDB the dropped attempt comes to its end in the background.
            world.let_time_pass().await;
        }
        assert_eq!(effects(&world.pool, no).await, ALL_DONE, "{step}");
    }
}

async fn a_worker_that_is_told_to_stop_lets_its_sagas_go_between_two_attempts<D: SagaDialect>(
    world: World<D>,
) {
    let shop = Shop::new(&world.pool);
    shop.at("before:charge", Do::Retry, 2);
    let saga = saga(&shop);
    let _ = saga.start(&key(7), &order(7)).await.unwrap_err();
    shop.at("after:charge", Do::Wait, 1);
    world.let_time_pass().await;
    let worker = saga.worker();
    let stop = async {
        while shop.times("after:charge") == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        shop.go();
    };
    worker.run_until(stop, Duration::from_secs(1)).await;
    assert_eq!(shop.times("before:book"), 0);
    let status = saga.status(&key(7)).await.unwrap().unwrap();
    assert_eq!(
        (status.state, status.cause),
        (SagaState::Running, Some(Cause::WorkerStopped))
    );
    // Nobody has to wait for a lease.
    let _ = saga.start(&key(7), &order(7)).await.unwrap();
    assert_eq!(effects(&world.pool, 7).await, ALL_DONE);
    assert_eq!(shop.times("after:charge"), 1);
}
