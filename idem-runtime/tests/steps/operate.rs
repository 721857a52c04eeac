//! What a person does: finds sagas, lets them be tried again, decides for them.

use std::time::Duration;

use idem_runtime::steps::{
    Cause, Rest, SagaDialect, SagaError, SagaFilter, SagaState, SagaTable, Step, StepState, Steps,
};

use crate::shop::{ALL_DONE, Do, Order, Shop, effects, key, order, saga, states, steps};
use crate::world::{World, on_each};

on_each!(
    stuck_sagas_are_found_counted_and_retried_together
    what_was_attempted_before_a_retry_is_kept
    a_step_that_a_person_knows_to_be_done_is_resolved
    what_a_person_resolved_is_undone_with_their_result
    a_saga_is_named_by_its_id_as_by_its_key
    one_step_has_retries_of_its_own
);

/// Stuck at `point`.
async fn stuck<D: SagaDialect>(world: &World<D>, no: i64, point: &str) -> Shop<D> {
    let shop = Shop::new(&world.pool);
    shop.at(point, Do::Retry, 4);
    let saga = saga(&shop);
    let mut ended = saga.start(&key(no), &order(no)).await;
    while let Err(SagaError::Waiting(_)) = &ended {
        world.let_time_pass().await;
        ended = saga.start(&key(no), &order(no)).await;
    }
    assert!(matches!(ended, Err(SagaError::Stuck(_))), "{ended:?}");
    shop
}

async fn stuck_sagas_are_found_counted_and_retried_together<D: SagaDialect>(world: World<D>) {
    for no in 1..=5 {
        stuck(&world, no, "before:charge").await;
    }
    let shop = Shop::new(&world.pool);
    let _ = saga(&shop).start(&key(6), &order(6)).await.unwrap();
    let other = Steps::named("other", shop.clone())
        .outside_without_undo("only", |_: Step<Order, Shop<D>>| async { Ok(f64::NAN) })
        .build(&world.pool)
        .unwrap();
    let _ = other.start(&key(1), &order(1)).await.unwrap_err();

    let (table, pool) = (SagaTable::default(), &world.pool);
    let count = async |filter: SagaFilter| table.count(pool, &filter).await.unwrap();
    assert_eq!(count(SagaFilter::new()).await, 7);
    assert_eq!(count(SagaFilter::stuck()).await, 6);
    assert_eq!(count(SagaFilter::new().rest(Rest::Waiting)).await, 0);
    assert_eq!(
        count(SagaFilter::new().state(SagaState::Completed)).await,
        1
    );
    assert_eq!(
        count(SagaFilter::stuck().cause(Cause::ResultUnusable)).await,
        1
    );
    assert_eq!(
        count(SagaFilter::stuck().older_than(Duration::ZERO)).await,
        6
    );
    let hour = Duration::from_secs(3600);
    assert_eq!(
        count(SagaFilter::stuck().name("other").older_than(hour)).await,
        0
    );

    let filter = SagaFilter::stuck().name("order.place");
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = table.list(pool, &filter, after, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 2);
        after = Some(last.id);
        seen.extend(page);
    }
    let mut keys: Vec<_> = seen.iter().map(|saga| saga.key().to_owned()).collect();
    keys.sort_unstable();
    assert_eq!(keys, (1..=5).map(key).collect::<Vec<_>>());
    for saga in &seen {
        assert_eq!(
            (saga.name.as_str(), saga.state),
            ("order.place", SagaState::Running)
        );
        assert_eq!(
            (saga.rest, saga.cause),
            (Some(Rest::Stuck), Some(Cause::AttemptFailed))
        );
        assert_eq!(
            (saga.step.as_deref(), saga.error.as_deref()),
            (Some("charge"), Some("not now"))
        );
        assert_eq!(saga.due_in, None);
        assert!(saga.age < hour);
        assert!(!format!("{saga:?}").contains(saga.key()));
    }

    assert_eq!(table.retry_all_stuck(pool, &filter).await.unwrap(), 5);
    assert_eq!(table.retry_all_stuck(pool, &filter).await.unwrap(), 0);
    assert_eq!(count(SagaFilter::stuck()).await, 1);
    let resumed = saga(&shop).worker().run_once().await.unwrap();
    assert_eq!(resumed.len(), 5);
    for no in 1..=6 {
        assert_eq!(effects(pool, no).await, ALL_DONE);
    }
}

async fn what_was_attempted_before_a_retry_is_kept<D: SagaDialect>(world: World<D>) {
    for (no, step) in (1..).zip(["charge", "book"]) {
        let shop = stuck(&world, no, &format!("before:{step}")).await;
        let saga = saga(&shop);
        assert!(saga.retry_stuck(&key(no)).await.unwrap());
        // Counted anew: two at once, and not stuck by the first.
        shop.at(&format!("before:{step}"), Do::Retry, 2);
        let again = saga.start(&key(no), &order(no)).await.unwrap_err();
        let SagaError::Waiting(left) = &again else {
            panic!("{again}");
        };
        assert_eq!(left.attempts, 6);
        world.let_time_pass().await;
        shop.at("before:ship", Do::Refuse, 1)
            .at(&format!("undo-before:{step}"), Do::Refuse, 1);
        let undoing = saga.start(&key(no), &order(no)).await.unwrap_err();
        assert!(matches!(undoing, SagaError::Stuck(_)), "{undoing}");
        assert!(saga.retry_stuck(&key(no)).await.unwrap());
        let undone = saga.start(&key(no), &order(no)).await.unwrap_err();
        assert!(matches!(undone, SagaError::Compensated(_)), "{undone}");
        let status = saga.status(&key(no)).await.unwrap().unwrap();
        let known = status
            .steps
            .iter()
            .find(|known| known.name == step)
            .unwrap();
        assert_eq!((known.attempts, known.undo_attempts), (7, 2));
    }
}

async fn a_step_that_a_person_knows_to_be_done_is_resolved<D: SagaDialect>(world: World<D>) {
    for (no, step) in (1..).zip(["charge", "book"]) {
        let shop = stuck(&world, no, &format!("before:{step}")).await;
        let saga = saga(&shop);
        let by_hand = "by hand".to_owned();
        let (key, note) = (key(no), "seen in the provider's dashboard, ann");
        for wrong in ["reserve", "ship", "no-such-step"] {
            assert!(
                !saga
                    .resolve_done(&key, wrong, &by_hand, note)
                    .await
                    .unwrap()
            );
        }
        assert!(!saga.resolve_undone(&key, step, note).await.unwrap());
        assert!(saga.resolve_done(&key, step, &by_hand, note).await.unwrap());
        assert!(!saga.resolve_done(&key, step, &by_hand, note).await.unwrap());
        let attempts = shop.times(&format!("before:{step}"));
        let results = saga.start(&key, &order(no)).await.unwrap();
        assert_eq!(results.get::<String>(step).unwrap(), "by hand");
        assert_eq!(shop.times(&format!("before:{step}")), attempts);
        let status = saga.status(&key).await.unwrap().unwrap();
        let known = status
            .steps
            .iter()
            .find(|known| known.name == step)
            .unwrap();
        assert_eq!(known.state, StepState::Done);
        let error = known.error.as_deref().unwrap();
        assert_eq!(error, format!("not now (done by hand: {note})"));
    }
}

async fn what_a_person_resolved_is_undone_with_their_result<D: SagaDialect>(world: World<D>) {
    let shop = stuck(&world, 1, "after:charge").await;
    let saga = saga(&shop);
    let found = "ch-found".to_owned();
    assert!(
        saga.resolve_done(&key(1), "charge", &found, "ann")
            .await
            .unwrap()
    );
    shop.at("before:book", Do::Refuse, 1);
    let undone = saga.start(&key(1), &order(1)).await.unwrap_err();
    assert!(matches!(undone, SagaError::Compensated(_)), "{undone}");
    assert_eq!(shop.times("undo:charge:ch-found"), 1);
    // In compensation there is nothing to resolve as done.
    let shop = stuck(&world, 2, "before:charge").await;
    shop.at("undo-before:charge", Do::Refuse, 1);
    let saga = crate::shop::saga(&shop);
    let stuck = saga.cancel(&key(2)).await.unwrap_err();
    assert!(matches!(stuck, SagaError::Stuck(_)), "{stuck}");
    assert!(
        !saga
            .resolve_done(&key(2), "charge", &found, "ann")
            .await
            .unwrap()
    );
}

async fn a_saga_is_named_by_its_id_as_by_its_key<D: SagaDialect>(world: World<D>) {
    let shop = stuck(&world, 1, "before:charge").await;
    let (saga, table) = (saga(&shop), SagaTable::default());
    let found = table
        .list(&world.pool, &SagaFilter::stuck(), None, 10)
        .await
        .unwrap();
    let id = found[0].id;
    let status = saga.status(id).await.unwrap().unwrap();
    assert_eq!(
        Some(&status),
        table.status_of(&world.pool, id).await.unwrap().as_ref()
    );
    assert_eq!((status.id, status.key()), (id, "order:1"));
    assert_eq!(status.cause, Some(Cause::AttemptFailed));
    assert_eq!(status.error.as_deref(), Some("not now"));
    assert!(!format!("{status:?}").contains("order:1"));
    // Another definition's functions are never run for it.
    let other = steps(&shop);
    let other = Steps::named("other", shop.clone())
        .outside_without_undo("charge", |_: Step<Order, Shop<D>>| async { Ok(()) })
        .accepts(["charge"])
        .build(&world.pool)
        .unwrap_or_else(|_| other.build(&world.pool).unwrap());
    let unknown = other.cancel(id).await.unwrap_err();
    assert!(matches!(unknown, SagaError::NotFound), "{unknown}");
    assert!(saga.retry_stuck(id).await.unwrap());
    saga.cancel(id).await.unwrap();
    let status = saga.status(id).await.unwrap().unwrap();
    assert_eq!(status.state, SagaState::Compensated);
    assert_eq!(states(&status)[0], StepState::Compensated);
}

async fn one_step_has_retries_of_its_own<D: SagaDialect>(world: World<D>) {
    use idem_runtime::steps::{Retries, StepOptions};
    let shop = Shop::new(&world.pool);
    let quick = Duration::from_millis(1);
    let patient = Retries::default().at_once(6).pauses(quick, quick).in_all(6);
    let saga = steps(&shop)
        .configure("charge", StepOptions::new().retries(patient))
        .build(&world.pool)
        .unwrap();
    shop.at("before:charge", Do::Retry, 5)
        .at("before:book", Do::Retry, 5);
    let waits = saga.start(&key(1), &order(1)).await.unwrap_err();
    let SagaError::Waiting(left) = &waits else {
        panic!("{waits}");
    };
    assert_eq!((left.step.as_deref(), left.attempts), (Some("book"), 2));
    assert_eq!(shop.times("before:charge"), 6);
}
