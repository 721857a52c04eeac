//! Tried again within bounds; then a person.

use std::time::Duration;

use idem_runtime::steps::{
    Cause, SagaDialect, SagaError, SagaState, Step, StepError, StepState, StepTx, Steps,
};
use idem_runtime::{Effect, Retry};

use crate::shop::{ALL_DONE, Do, Order, Shop, effects, key, order, saga, states};
use crate::world::{World, number, on_each, run};

on_each!(
    a_step_is_tried_again_at_once_then_later_then_not_without_a_person
    a_panic_is_an_attempt_that_failed
    a_stuck_compensation_is_retried_or_resolved_by_a_person
    a_compensation_that_is_refused_needs_a_person
    a_result_that_no_longer_decodes_needs_a_person_and_undoes_nothing
    a_result_that_cannot_be_recorded_is_not_an_effect
    a_transaction_that_ended_inside_is_never_counted_as_done
    the_worker_stops_when_it_is_told_to
    a_step_that_its_process_never_survives_needs_a_person
    a_compensation_that_its_process_never_survives_needs_a_person
);

async fn a_step_is_tried_again_at_once_then_later_then_not_without_a_person<D: SagaDialect>(
    world: World<D>,
) {
    for (no, step) in (1..).zip(["charge", "book"]) {
        let shop = Shop::new(&world.pool);
        let point = format!("before:{step}");
        shop.at(&point, Do::Retry, 4);
        let saga = saga(&shop);
        let error = saga.start(&key(no), &order(no)).await.unwrap_err();
        let SagaError::Waiting(left) = &error else {
            panic!("{error}");
        };
        assert_eq!((left.attempts, left.compensation), (2, false));
        assert_eq!(error.effect(), Effect::Unknown);
        assert!(matches!(error.retry(), Retry::Later(Some(_))));
        assert_eq!(shop.times(&point), 2);
        // A repeat before its time says so, and makes no attempt.
        let again = saga.start(&key(no), &order(no)).await.unwrap_err();
        let SagaError::Waiting(again) = &again else {
            panic!("{again}");
        };
        assert_eq!((&again.step, &again.error), (&left.step, &left.error));
        assert!(again.again_in.unwrap() > Duration::from_secs(1));
        assert_eq!(shop.times(&point), 2);

        // From then on one at a time.
        world.let_time_pass().await;
        let resumed = saga.worker().run_once().await.unwrap();
        assert_eq!(resumed[0].key(), key(no));
        assert!(matches!(resumed[0].outcome, Err(SagaError::Waiting(_))));
        assert_eq!(shop.times(&point), 3);
        world.let_time_pass().await;
        let resumed = saga.worker().run_once().await.unwrap();
        assert!(matches!(resumed[0].outcome, Err(SagaError::Stuck(_))));
        assert_eq!(shop.times(&point), 4);
        world.let_time_pass().await;
        assert!(saga.worker().run_once().await.unwrap().is_empty());
        let stuck = saga.start(&key(no), &order(no)).await.unwrap_err();
        let SagaError::Stuck(left) = &stuck else {
            panic!("{stuck}");
        };
        assert_eq!((left.step.as_deref(), left.attempts), (Some(step), 4));
        assert_eq!((left.again_in, left.cause), (None, Cause::AttemptFailed));
        // Nothing was undone: nobody has decided that.
        assert_eq!(effects(&world.pool, no).await[0], (1, 0));
        assert!(saga.retry_stuck(&key(no)).await.unwrap());
        assert!(!saga.retry_stuck(&key(no)).await.unwrap());
        let _ = saga.start(&key(no), &order(no)).await.unwrap();
        assert_eq!(effects(&world.pool, no).await, ALL_DONE);
    }
}

async fn a_panic_is_an_attempt_that_failed<D: SagaDialect>(world: World<D>) {
    let shop = Shop::new(&world.pool);
    shop.at("after:reserve", Do::Panic, 1)
        .at("after:charge", Do::Panic, 1)
        .at("before:ship", Do::Refuse, 1)
        .at("undo-after:reserve", Do::Panic, 1)
        .at("undo-after:charge", Do::Panic, 2);
    let saga = saga(&shop);
    let error = saga.start(&key(7), &order(7)).await.unwrap_err();
    let SagaError::Waiting(left) = &error else {
        panic!("{error}");
    };
    assert_eq!(left.error, "it panicked: the shop is on fire");
    world.let_time_pass().await;
    let resumed = saga.worker().run_once().await.unwrap();
    assert!(matches!(resumed[0].outcome, Err(SagaError::Compensated(_))));
    let expected = [(1, 1), (1, 1), (1, 1), (0, 0)];
    assert_eq!(effects(&world.pool, 7).await, expected);
}

async fn a_stuck_compensation_is_retried_or_resolved_by_a_person<D: SagaDialect>(world: World<D>) {
    for (no, by_hand) in [(1, false), (2, true)] {
        let shop = Shop::new(&world.pool);
        shop.at("before:ship", Do::Refuse, 1)
            .at("undo-before:charge", Do::Retry, 4);
        let saga = saga(&shop);
        let _ = saga.start(&key(no), &order(no)).await.unwrap_err();
        world.let_time_pass().await;
        let _ = saga.worker().run_once().await.unwrap();
        world.let_time_pass().await;
        let resumed = saga.worker().run_once().await.unwrap();
        let Err(SagaError::Stuck(left)) = &resumed[0].outcome else {
            panic!("{:?}", resumed[0].outcome);
        };
        assert!(left.compensation);
        assert_eq!((left.step.as_deref(), left.attempts), (Some("charge"), 4));
        let status = saga.status(&key(no)).await.unwrap().unwrap();
        assert_eq!(status.state, SagaState::Compensating);
        assert_eq!(states(&status)[1], StepState::CompensationFailed);
        assert_eq!(status.due_in, None);
        assert!(!saga.resolve_undone(&key(no), "book", "-").await.unwrap());
        if by_hand {
            let note = "refunded by ann, ticket 12";
            assert!(saga.resolve_undone(&key(no), "charge", note).await.unwrap());
            assert!(!saga.resolve_undone(&key(no), "charge", note).await.unwrap());
        } else {
            assert!(saga.retry_stuck(&key(no)).await.unwrap());
        }
        let resumed = saga.worker().run_once().await.unwrap();
        assert!(matches!(resumed[0].outcome, Err(SagaError::Compensated(_))));
        let charge = if by_hand { (1, 0) } else { (1, 1) };
        let expected = [(1, 1), charge, (1, 1), (0, 0)];
        assert_eq!(effects(&world.pool, no).await, expected);
        let status = saga.status(&key(no)).await.unwrap().unwrap();
        assert_eq!(states(&status)[1], StepState::Compensated);
        let error = status.steps[1].error.as_deref();
        if by_hand {
            let kept = "not now (undone by hand: refunded by ann, ticket 12)";
            assert_eq!(error, Some(kept));
        }
    }
}

async fn a_compensation_that_is_refused_needs_a_person<D: SagaDialect>(world: World<D>) {
    for (no, step) in (1..).zip(["book", "charge"]) {
        let shop = Shop::new(&world.pool);
        shop.at("before:ship", Do::Refuse, 1)
            .at(&format!("undo-before:{step}"), Do::Refuse, 1);
        let saga = saga(&shop);
        let error = saga.start(&key(no), &order(no)).await.unwrap_err();
        assert!(
            matches!(&error, SagaError::Stuck(left) if left.attempts == 1),
            "{error}"
        );
        assert_eq!(effects(&world.pool, no).await[0], (1, 0));
    }
}

async fn a_result_that_no_longer_decodes_needs_a_person_and_undoes_nothing<D: SagaDialect>(
    world: World<D>,
) {
    let shop = Shop::new(&world.pool);
    let build = |numbers: bool| {
        let steps = Steps::named("evolving", shop.clone()).step(
            "price",
            |step: StepTx<D, Order, Shop<D>>| async move {
                step.context().mark("price");
                Ok(vec![step.input().cents])
            },
            |step, was: Vec<i64>| async move {
                step.context().mark(&format!("undo {was:?}"));
                Ok(())
            },
        );
        let pay = move |step: Step<Order, Shop<D>>| async move {
            step.context().mark("pay");
            if numbers {
                let price: i64 = step.result("price")?;
                return Ok(price);
            }
            Err(StepError::retry("not yet"))
        };
        steps
            .outside_without_undo("pay", pay)
            .build(&world.pool)
            .unwrap()
    };
    let error = build(false).start(&key(7), &order(7)).await.unwrap_err();
    assert!(matches!(error, SagaError::Waiting(_)), "{error}");
    world.let_time_pass().await;
    let saga = build(true);
    let resumed = saga.worker().run_once().await.unwrap();
    let Err(SagaError::Stuck(left)) = &resumed[0].outcome else {
        panic!("{:?}", resumed[0].outcome);
    };
    assert!(left.error.contains("does not decode"), "{}", left.error);
    assert_eq!(shop.times("price"), 1, "it was not run again");
    assert_eq!(shop.times("undo [990]"), 0);
    // The saga itself does not decode either: its input is of another type by now.
    let other = Steps::named("evolving", ())
        .step_without_undo("price", |_: StepTx<D, String>| async { Ok(()) })
        .outside_without_undo("pay", |_: Step<String>| async { Ok(()) })
        .build(&world.pool)
        .unwrap();
    assert!(saga.retry_stuck(&key(7)).await.unwrap());
    let resumed = other.worker().run_once().await.unwrap();
    let Err(SagaError::Waiting(left)) = &resumed[0].outcome else {
        panic!("it was run");
    };
    assert_eq!((left.cause, &left.step), (Cause::InputUndecodable, &None));
    assert!(
        other.worker().run_once().await.unwrap().is_empty(),
        "left to others for a while"
    );
}

async fn a_result_that_cannot_be_recorded_is_not_an_effect<D: SagaDialect>(world: World<D>) {
    let shop = Shop::new(&world.pool);
    let saga = Steps::named("nan", shop.clone())
        .step_without_undo("rate", |mut step: StepTx<D, Order, Shop<D>>| async move {
            run::<D>(step.tx(), "INSERT INTO effect VALUES ('rate', 7, 0, '')").await?;
            Ok(f64::NAN)
        })
        .build(&world.pool)
        .unwrap();
    let error = saga.start(&key(7), &order(7)).await.unwrap_err();
    assert!(matches!(error, SagaError::Stuck(_)), "{error}");
    assert_eq!(number(&world.pool, "SELECT COUNT(*) FROM effect").await, 0);
}

async fn a_transaction_that_ended_inside_is_never_counted_as_done<D: SagaDialect>(world: World<D>) {
    // The first one aborts a transaction of Postgres, and no other.
    for (no, end) in (1..).zip(["SELECT 1 FROM no_such_table", "ROLLBACK"]) {
        let shop = Shop::new(&world.pool);
        let saga = Steps::named("swallows", shop.clone())
            .step_without_undo(
                "reserve",
                move |mut step: StepTx<D, Order, Shop<D>>| async move {
                    let effect = format!("INSERT INTO effect VALUES ('reserve', {no}, 0, '')");
                    run::<D>(step.tx(), effect).await?;
                    if step.attempt() == 1 {
                        let _ = run::<D>(step.tx(), end).await;
                    }
                    Ok(())
                },
            )
            .build(&world.pool)
            .unwrap();
        let done = saga.start(&key(no), &order(no)).await;
        let count = format!("SELECT COUNT(*) FROM effect WHERE no = {no}");
        let effects = number(&world.pool, count).await;
        assert_eq!((done.is_ok(), effects), (true, 1), "{end}: {done:?}");
        let status = saga.status(&key(no)).await.unwrap().unwrap();
        let again = u32::from(D::INDEX == 0 || end == "ROLLBACK");
        // After a ROLLBACK of one's own a connection may be good for nothing.
        assert!(status.steps[0].attempts > again, "{end}");
    }
}

/// Handed out again it would fail each attempt.
#[tokio::test]
async fn a_connection_that_a_step_spoilt_is_not_used_again() {
    for connections in [1, 2, 3] {
        let world = crate::world::sqlite().await;
        let few = sqlx::sqlite::SqlitePoolOptions::new().max_connections(connections);
        let pool = few.connect(&world.url).await.unwrap();
        let mut all = Vec::new();
        for _ in 0..connections {
            all.push(pool.acquire().await.unwrap());
        }
        drop(all);
        let saga = Steps::named("spoils", ())
            .step_without_undo(
                "reserve",
                |mut step: StepTx<sqlx::Sqlite, Order>| async move {
                    if step.attempt() == 1 {
                        run::<sqlx::Sqlite>(step.tx(), "ROLLBACK").await?;
                    }
                    Ok(())
                },
            )
            .build(&pool)
            .unwrap();
        let (key, order) = (key(1), order(1));
        let started = tokio::time::timeout(Duration::from_secs(60), saga.start(&key, &order));
        let _ = started.await.expect("it goes round in a circle").unwrap();
        let status = saga.status(&key).await.unwrap().unwrap();
        assert_eq!(status.steps[0].attempts, 2, "{connections} connections");
    }
}

/// The spoilt one is the next that the pool hands out, and good ones are behind it.
#[tokio::test]
async fn a_good_connection_does_not_take_turns_with_a_spoilt_one() {
    let world = crate::world::sqlite().await;
    let two = sqlx::sqlite::SqlitePoolOptions::new().max_connections(2);
    let pool = two.connect(&world.url).await.unwrap();
    for _ in 0..20 {
        let (mut spoilt, good) = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
        let mut tx = sqlx::Connection::begin(&mut *spoilt).await.unwrap();
        sqlx::query("ROLLBACK").execute(&mut *tx).await.unwrap();
        drop(tx);
        drop(spoilt);
        while pool.num_idle() < 1 {
            tokio::task::yield_now().await;
        }
        drop(good);
        while pool.num_idle() < 2 {
            tokio::task::yield_now().await;
        }
        let tx = <sqlx::Sqlite as idem_runtime::store::sql::Dialect>::begin(&pool);
        let tx = tokio::time::timeout(Duration::from_secs(20), tx).await;
        let tx = tx.expect("it goes round in a circle").unwrap();
        tx.rollback().await.unwrap();
    }
}

async fn the_worker_stops_when_it_is_told_to<D: SagaDialect>(world: World<D>) {
    let shop = Shop::new(&world.pool);
    shop.at("before:book", Do::Retry, 2)
        .at("after:ship", Do::Wait, 1);
    let saga = saga(&shop);
    let _ = saga.start(&key(7), &order(7)).await.unwrap_err();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = tokio::spawn({
        let worker = saga.worker();
        async move {
            let stopped = async { drop(stopped.await) };
            worker.run_until(stopped, Duration::from_millis(20)).await;
        }
    });
    world.let_time_pass().await;
    world
        .until("SELECT COUNT(*) FROM other_side WHERE step = 'ship'")
        .await;
    // The saga in hand comes to its end first.
    stop.send(()).unwrap();
    shop.go();
    worker.await.unwrap();
    let status = saga.status(&key(7)).await.unwrap().unwrap();
    assert_eq!(status.state, SagaState::Completed);
    assert_eq!(effects(&world.pool, 7).await, ALL_DONE);
}

/// Runs what is due until it comes by `point`, and ends there as a process does that is killed: nothing
/// is let go.
async fn dies_at<D: SagaDialect>(world: &World<D>, shop: &Shop<D>, point: &str) {
    let before = shop.times(point);
    world.let_time_pass().await;
    let run = tokio::spawn({
        let saga = saga(shop);
        async move { saga.worker().run_once().await }
    });
    while shop.times(point) == before {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
}

/// Makes no attempt, and says that the saga is stuck after four.
async fn gives_up<D: SagaDialect>(world: &World<D>, shop: &Shop<D>, point: &str) -> StepState {
    let (saga, before) = (saga(shop), shop.times(point));
    world.let_time_pass().await;
    let resumed = saga.worker().run_once().await.unwrap();
    let Err(SagaError::Stuck(left)) = &resumed[0].outcome else {
        panic!("{:?}", resumed[0].outcome);
    };
    assert_eq!(shop.times(point), before);
    let status = saga.status(resumed[0].id).await.unwrap().unwrap();
    let step = status
        .steps
        .iter()
        .find(|step| Some(&step.name) == left.step.as_ref());
    let step = step.unwrap();
    let attempts = if left.compensation {
        step.undo_attempts
    } else {
        step.attempts
    };
    assert_eq!((left.attempts, attempts), (4, 4));
    let error = step.error.as_deref().unwrap();
    assert!(error.contains("its process"), "{error}");
    assert!(point.ends_with(&step.name));
    step.state
}

async fn a_step_that_its_process_never_survives_needs_a_person<D: SagaDialect>(world: World<D>) {
    for (no, step) in (1..).zip(["charge", "book"]) {
        let shop = Shop::new(&world.pool);
        let point = format!("before:{step}");
        shop.at(&point, Do::Wait, 4);
        let saga = saga(&shop);
        let start = tokio::spawn({
            let saga = saga.clone();
            async move { saga.start(&key(no), &order(no)).await }
        });
        while shop.times(&point) == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        start.abort();
        assert!(start.await.unwrap_err().is_cancelled());
        for _ in 1..4 {
            dies_at(&world, &shop, &point).await;
        }
        let state = gives_up(&world, &shop, &point).await;
        let begun = if step == "book" {
            StepState::Pending
        } else {
            StepState::Started
        };
        assert_eq!(state, begun);
        assert!(saga.retry_stuck(&key(no)).await.unwrap());
        let _ = saga.start(&key(no), &order(no)).await.unwrap();
        assert_eq!(effects(&world.pool, no).await, ALL_DONE);
        shop.go();
    }
}

async fn a_compensation_that_its_process_never_survives_needs_a_person<D: SagaDialect>(
    world: World<D>,
) {
    for (no, step) in (1..).zip(["charge", "book"]) {
        let shop = Shop::new(&world.pool);
        let point = format!("undo-before:{step}");
        shop.at("before:ship", Do::Refuse, 1)
            .at(&point, Do::Wait, 4);
        let saga = saga(&shop);
        let start = tokio::spawn({
            let saga = saga.clone();
            async move { saga.start(&key(no), &order(no)).await }
        });
        while shop.times(&point) == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        start.abort();
        assert!(start.await.unwrap_err().is_cancelled());
        for _ in 1..4 {
            dies_at(&world, &shop, &point).await;
        }
        let state = gives_up(&world, &shop, &point).await;
        assert_eq!(state, StepState::CompensationFailed);
        assert!(
            saga.resolve_undone(&key(no), step, "by hand")
                .await
                .unwrap()
        );
        let resumed = saga.worker().run_once().await.unwrap();
        assert!(matches!(resumed[0].outcome, Err(SagaError::Compensated(_))));
        let undone = effects(&world.pool, no).await;
        let hand = if step == "book" { 2 } else { 1 };
        for (at, effect) in undone.iter().enumerate().take(3) {
            assert_eq!(*effect, (1, i64::from(at != hand)), "{undone:?}");
        }
        shop.go();
    }
}
