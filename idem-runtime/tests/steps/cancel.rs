//! Cancelled: undone, fenced off, and refused from then on.

use std::time::Duration;

use idem_runtime::Effect;
use idem_runtime::steps::{SagaDialect, SagaError, SagaState, StepState};

use crate::shop::{ALL_DONE, Do, Shop, assert_all_undone, effects, key, order, saga, states};
use crate::world::{World, number, on_each};

on_each!(
    an_unknown_saga_is_cancelled_and_a_late_start_refused
    a_completed_saga_stays_completed
    a_late_outside_step_is_not_recorded_after_the_cancellation
    a_late_transactional_step_is_rolled_back_after_the_cancellation
    a_saga_that_waits_or_is_stuck_is_cancelled
    many_cancellations_are_one
    cancellation_and_start_at_once_end_in_one_of_both
);

async fn an_unknown_saga_is_cancelled_and_a_late_start_refused<D: SagaDialect>(world: World<D>) {
    let shop = Shop::new(&world.pool);
    let saga = saga(&shop);
    for _ in 0..2 {
        saga.cancel(&key(7)).await.unwrap();
    }
    let late = saga.start(&key(7), &order(7)).await.unwrap_err();
    let SagaError::Compensated(failure) = &late else {
        panic!("{late}");
    };
    assert!(failure.cancelled);
    assert_eq!((&failure.step, &failure.error), (&None, &None));
    assert_eq!(late.effect(), Effect::None);
    assert!(shop.log().is_empty());
    let status = saga.status(&key(7)).await.unwrap().unwrap();
    assert_eq!(status.state, SagaState::Compensated);
    assert_eq!(states(&status), [StepState::Pending; 4]);
    world.let_time_pass().await;
    assert!(saga.worker().run_once().await.unwrap().is_empty());
}

async fn a_completed_saga_stays_completed<D: SagaDialect>(world: World<D>) {
    let saga = saga(&Shop::new(&world.pool));
    let _ = saga.start(&key(7), &order(7)).await.unwrap();
    let refused = saga.cancel(&key(7)).await.unwrap_err();
    assert!(matches!(refused, SagaError::Completed));
    assert_eq!(refused.effect(), Effect::Done);
    assert_eq!(effects(&world.pool, 7).await, ALL_DONE);
    let _ = saga.start(&key(7), &order(7)).await.unwrap();
}

async fn a_late_outside_step_is_not_recorded_after_the_cancellation<D: SagaDialect>(
    world: World<D>,
) {
    let shop = Shop::new(&world.pool);
    shop.at("after:ship", Do::Wait, 1);
    let saga = saga(&shop);
    let late = tokio::spawn({
        let saga = saga.clone();
        async move { saga.start(&key(7), &order(7)).await }
    });
    world
        .until("SELECT COUNT(*) FROM other_side WHERE step = 'ship'")
        .await;
    let before = saga.status(&key(7)).await.unwrap().unwrap().fence;
    saga.cancel(&key(7)).await.unwrap();
    shop.go();
    let late = late.await.unwrap().unwrap_err();
    assert!(
        matches!(&late, SagaError::Compensated(f) if f.cancelled),
        "{late}"
    );
    assert_eq!(shop.times("undo:ship:unknown"), 1);
    let effects = effects(&world.pool, 7).await;
    assert_eq!(effects, [(1, 1); 4]);
    let status = saga.status(&key(7)).await.unwrap().unwrap();
    assert_eq!(states(&status), [StepState::Compensated; 4]);
    assert!(status.fence > before);
    // The other side can tell a late step from what undid it.
    let fences = "SELECT MIN(undoing.fence) - MAX(done.fence) FROM other_side undoing, \
                  other_side done WHERE undoing.undone = 1 AND done.undone = 0";
    assert!(number(&world.pool, fences).await > 0);
}

async fn a_late_transactional_step_is_rolled_back_after_the_cancellation<D: SagaDialect>(
    world: World<D>,
) {
    let shop = Shop::new(&world.pool);
    // Where a transaction keeps all others from writing it cannot be overtaken once it has begun.
    let overtaken = D::INDEX != 1;
    shop.at("before:book", Do::Wait, 1);
    let saga = saga(&shop);
    let late = tokio::spawn({
        let saga = saga.clone();
        async move { saga.start(&key(7), &order(7)).await }
    });
    for _ in 0..3000 {
        if shop.times("before:book") > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let cancelled = tokio::spawn({
        let saga = saga.clone();
        async move { saga.cancel(&key(7)).await }
    });
    if overtaken {
        cancelled.await.unwrap().unwrap();
        shop.go();
    } else {
        shop.go();
        let cancelled = cancelled.await.unwrap();
        assert!(
            matches!(cancelled, Ok(()) | Err(SagaError::Completed)),
            "{cancelled:?}"
        );
        if cancelled.is_err() {
            assert_eq!(effects(&world.pool, 7).await, ALL_DONE);
            return;
        }
    }
    let late = late.await.unwrap().unwrap_err();
    assert!(
        matches!(&late, SagaError::Compensated(f) if f.cancelled),
        "{late}"
    );
    let effects = effects(&world.pool, 7).await;
    assert_all_undone(&effects);
    if overtaken {
        // It went on to its end, and was not committed.
        assert_eq!(effects, [(1, 1), (1, 1), (0, 0), (0, 0)]);
    }
}

async fn a_saga_that_waits_or_is_stuck_is_cancelled<D: SagaDialect>(world: World<D>) {
    for (no, failures) in [(1, 2), (2, 9)] {
        let shop = Shop::new(&world.pool);
        shop.at("before:book", Do::Retry, failures);
        let saga = saga(&shop);
        let mut error = saga.start(&key(no), &order(no)).await.unwrap_err();
        if failures > 2 {
            world.let_time_pass().await;
            error = saga.start(&key(no), &order(no)).await.unwrap_err();
            assert!(matches!(error, SagaError::Waiting(_)), "{error}");
            world.let_time_pass().await;
            error = saga.start(&key(no), &order(no)).await.unwrap_err();
            assert!(matches!(error, SagaError::Stuck(_)), "{error}");
        } else {
            assert!(matches!(error, SagaError::Waiting(_)), "{error}");
        }
        saga.cancel(&key(no)).await.unwrap();
        let expected = [(1, 1), (1, 1), (0, 0), (0, 0)];
        assert_eq!(effects(&world.pool, no).await, expected);
    }
}

async fn many_cancellations_are_one<D: SagaDialect>(world: World<D>) {
    let shop = Shop::new(&world.pool);
    shop.at("before:ship", Do::Retry, 2);
    let saga = saga(&shop);
    let error = saga.start(&key(7), &order(7)).await.unwrap_err();
    assert!(matches!(error, SagaError::Waiting(_)), "{error}");
    let all = (0..20).map(|_| {
        let saga = saga.clone();
        tokio::spawn(async move { saga.cancel(&key(7)).await })
    });
    for one in all.collect::<Vec<_>>() {
        one.await.unwrap().unwrap();
    }
    let effects = effects(&world.pool, 7).await;
    assert_eq!(effects, [(1, 1), (1, 1), (1, 1), (0, 1)]);
    for step in ["reserve", "charge", "book", "ship"] {
        assert_eq!(shop.times(&format!("undo-before:{step}")), 1);
    }
}

async fn cancellation_and_start_at_once_end_in_one_of_both<D: SagaDialect>(world: World<D>) {
    for no in 0..20 {
        let shop = Shop::new(&world.pool);
        let saga = saga(&shop);
        let start = tokio::spawn({
            let saga = saga.clone();
            async move { saga.start(&key(no), &order(no)).await }
        });
        tokio::time::sleep(Duration::from_millis(u64::try_from(no).unwrap())).await;
        let cancelled = saga.cancel(&key(no)).await;
        let started = start.await.unwrap();
        let effects = effects(&world.pool, no).await;
        match cancelled {
            Ok(()) => {
                assert!(
                    matches!(started, Err(SagaError::Compensated(_))),
                    "{started:?}"
                );
                assert_all_undone(&effects);
            }
            Err(SagaError::Completed) => {
                assert!(started.is_ok(), "{started:?}");
                assert_eq!(effects, ALL_DONE);
            }
            Err(error) => panic!("{error}"),
        }
    }
}
