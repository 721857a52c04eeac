//! One run for each key.

use idem_runtime::steps::{SagaDialect, SagaError, SagaState, StepState};
use idem_runtime::{Effect, ErrorKind, Retry};
use std::time::Duration;

use crate::shop::{ALL_DONE, Do, Order, Shop, effects, key, order, saga, states, steps};
use crate::world::{World, number, on_each};

on_each!(
    the_results_are_recorded_and_replayed
    a_hundred_equal_starts_are_one_run
    another_input_is_refused
    a_repeat_of_a_running_saga_waits_for_it_or_is_refused
    nothing_is_known_of_an_unknown_key
    a_key_is_checked
);

async fn the_results_are_recorded_and_replayed<D: SagaDialect>(world: World<D>) {
    let shop = Shop::new(&world.pool);
    let saga = saga(&shop);
    let first = saga.start(&key(7), &order(7)).await.unwrap();
    let points = shop.log().len();
    assert_eq!(effects(&world.pool, 7).await, ALL_DONE);
    // In another process there is another shop.
    let later = crate::shop::saga(&Shop::new(&world.pool));
    let again = later.start(&key(7), &order(7)).await.unwrap();
    for step in crate::shop::STEPS {
        let result: String = first.get(step).unwrap();
        assert!(result.starts_with(&format!("{step}-7-")), "{result}");
        assert_eq!(result, again.get::<String>(step).unwrap());
    }
    assert_eq!(shop.log().len(), points);
    let none = first.get::<String>("no such step").unwrap_err();
    assert_eq!(none.kind(), ErrorKind::UnknownStep);
    assert_eq!(none.effect(), Effect::None);
    let other = first.get::<u64>("charge").unwrap_err();
    assert_eq!(other.kind(), ErrorKind::OutcomeUndecodable);

    let status = saga.status(&key(7)).await.unwrap().unwrap();
    assert_eq!(status.state, SagaState::Completed);
    assert_eq!(states(&status), [StepState::Done; 4]);
    assert_eq!(
        (status.due_in, status.failure, status.rest),
        (None, None, None)
    );
    assert_eq!(status.steps.iter().map(|step| step.attempts).max(), Some(1));
    assert_eq!(effects(&world.pool, 7).await, ALL_DONE);
}

async fn a_hundred_equal_starts_are_one_run<D: SagaDialect>(world: World<D>) {
    let shop = Shop::new(&world.pool);
    let saga = saga(&shop);
    let starts = (0..100).map(|_| {
        let saga = saga.clone();
        tokio::spawn(async move { saga.start(&key(7), &order(7)).await })
    });
    let mut charges = Vec::new();
    for start in starts.collect::<Vec<_>>() {
        let results = start.await.unwrap().unwrap();
        charges.push(results.get::<String>("charge").unwrap());
    }
    charges.dedup();
    assert_eq!(charges.len(), 1);
    assert_eq!(effects(&world.pool, 7).await, ALL_DONE);
    let calls = number(&world.pool, "SELECT MAX(calls) FROM other_side").await;
    assert_eq!(calls, 1);
}

async fn another_input_is_refused<D: SagaDialect>(world: World<D>) {
    let shop = Shop::new(&world.pool);
    let saga = saga(&shop);
    let _ = saga.start(&key(7), &order(7)).await.unwrap();
    let dearer = Order {
        cents: 1000,
        ..order(7)
    };
    let error = saga.start(&key(7), &dearer).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::FingerprintMismatch));
    assert_eq!(error.retry(), Retry::Never);
    assert!(error.to_string().contains("[order.place "), "{error}");
    assert!(!error.to_string().contains("order:7"), "{error}");
    assert_eq!(effects(&world.pool, 7).await, ALL_DONE);
}

async fn a_repeat_of_a_running_saga_waits_for_it_or_is_refused<D: SagaDialect>(world: World<D>) {
    let shop = Shop::new(&world.pool);
    shop.at("before:ship", Do::Wait, 1);
    let patient = saga(&shop);
    let hasty = steps(&shop)
        .wait(Duration::ZERO)
        .build(&world.pool)
        .unwrap();
    let first = tokio::spawn({
        let saga = patient.clone();
        async move { saga.start(&key(7), &order(7)).await }
    });
    world
        .until("SELECT COUNT(*) FROM idem_saga_step WHERE name = 'ship'")
        .await;
    let refused = hasty.start(&key(7), &order(7)).await.unwrap_err();
    assert_eq!(refused.kind(), Some(ErrorKind::InProgress));
    assert_eq!(refused.effect(), Effect::None);
    let status = hasty.status(&key(7)).await.unwrap().unwrap();
    assert_eq!(status.state, SagaState::Running);
    use StepState::{Done, Started};
    assert_eq!(states(&status), [Done, Done, Done, Started]);
    assert!(status.due_in.unwrap() > Duration::from_secs(1));
    let (key, order) = (key(7), order(7));
    let (second, ()) = tokio::join!(patient.start(&key, &order), async {
        tokio::task::yield_now().await;
        shop.go();
    });
    let first = first.await.unwrap().unwrap();
    let ship: String = first.get("ship").unwrap();
    assert_eq!(second.unwrap().get::<String>("ship").unwrap(), ship);
    assert_eq!(effects(&world.pool, 7).await, ALL_DONE);
}

async fn nothing_is_known_of_an_unknown_key<D: SagaDialect>(world: World<D>) {
    let saga = saga(&Shop::new(&world.pool));
    assert_eq!(saga.status(&key(1)).await.unwrap(), None);
    assert!(!saga.retry_stuck(&key(1)).await.unwrap());
    assert!(!saga.resolve_undone(&key(1), "charge", "-").await.unwrap());
    assert!(saga.worker().run_once().await.unwrap().is_empty());
    assert_eq!(
        number(&world.pool, "SELECT COUNT(*) FROM idem_saga").await,
        0
    );
}

async fn a_key_is_checked<D: SagaDialect>(world: World<D>) {
    let saga = saga(&Shop::new(&world.pool));
    let empty = saga.start("", &order(7)).await.unwrap_err();
    assert_eq!(empty.kind(), Some(ErrorKind::EmptyKeyPart));
    let long = saga
        .start(&"x".repeat(70_000), &order(7))
        .await
        .unwrap_err();
    assert_eq!(long.kind(), Some(ErrorKind::KeyTooLong));
    assert!(matches!(long, SagaError::Idem(_)));
    // What a text column does not take, or takes for the same, makes keys of its own.
    for odd in ["a\0b", "a%00b", "ä", "Ä", "a ", "a"] {
        let _ = saga.start(odd, &order(7)).await.unwrap();
        let status = saga.status(odd).await.unwrap().unwrap();
        assert_eq!(status.state, SagaState::Completed);
    }
    assert_eq!(
        number(&world.pool, "SELECT COUNT(*) FROM idem_saga").await,
        6
    );
}
