//! The list of steps has changed since the saga was begun.

use std::time::Duration;

use idem_runtime::steps::{
    Saga, SagaDialect, SagaError, SagaState, Step, StepError, StepOptions, StepState, StepTx, Steps,
};
use idem_runtime::{Effect, ErrorKind, Retry};

use crate::shop::{Order, Shop, key, order, states};
use crate::world::{World, number, on_each};

on_each!(
    another_list_is_detected_and_nothing_is_run
    an_accepted_list_is_run_to_its_end
    an_ended_saga_is_answered_whatever_the_list
    a_cancellation_under_another_list_fences_and_is_left_to_a_build_that_can
    a_list_that_makes_no_sense_is_refused
);

fn begin<D: SagaDialect>(shop: &Shop<D>) -> Steps<D, Order, Shop<D>> {
    Steps::named("order.place", shop.clone()).step(
        "reserve",
        |step: StepTx<D, Order, Shop<D>>| async move {
            step.context().mark("reserve");
            Ok("reserved".to_owned())
        },
        |step, was: String| async move {
            step.context().mark(&format!("undo {was}"));
            Ok(())
        },
    )
}

fn add<D: SagaDialect>(
    steps: Steps<D, Order, Shop<D>>,
    name: &'static str,
    works: bool,
) -> Steps<D, Order, Shop<D>> {
    steps.outside_without_undo(name, move |step: Step<Order, Shop<D>>| async move {
        step.context().mark(name);
        if works {
            let reserved: String = step.result("reserve")?;
            Ok(reserved)
        } else {
            Err(StepError::retry("not now"))
        }
    })
}

fn built<D: SagaDialect>(
    steps: Steps<D, Order, Shop<D>>,
    world: &World<D>,
) -> Saga<D, Order, Shop<D>> {
    steps.build(&world.pool).unwrap()
}

/// Begun under `reserve charge`, and left before `charge`.
async fn begun<D: SagaDialect>(world: &World<D>) -> Shop<D> {
    let shop = Shop::new(&world.pool);
    let old = built(add(begin(&shop), "charge", false), world);
    let error = old.start(&key(7), &order(7)).await.unwrap_err();
    assert!(matches!(error, SagaError::Waiting(_)), "{error}");
    world.let_time_pass().await;
    Shop::new(&world.pool)
}

async fn another_list_is_detected_and_nothing_is_run<D: SagaDialect>(world: World<D>) {
    let shop = begun(&world).await;
    let inserted = add(add(begin(&shop), "check", true), "charge", true);
    let renamed = add(begin(&shop), "pay", true);
    let versioned = add(begin(&shop), "charge@2", true);
    let shorter = begin(&shop);
    let longer = add(add(begin(&shop), "charge", true), "ship", true);
    for steps in [inserted, renamed, versioned, shorter, longer] {
        world.let_time_pass().await;
        let saga = built(steps, &world);
        let before = saga.status(&key(7)).await.unwrap().unwrap();
        let resumed = saga.worker().run_once().await.unwrap();
        assert_eq!(resumed.len(), 1);
        let Err(SagaError::StepsChanged {
            stored, current, ..
        }) = &resumed[0].outcome
        else {
            panic!("{:?}", resumed[0].outcome);
        };
        assert_eq!(stored, &["reserve", "charge (outside)"]);
        assert_ne!(stored, current);
        // It is left to others for a while, and not taken from them.
        assert!(saga.worker().run_once().await.unwrap().is_empty());
        let after = saga.status(&key(7)).await.unwrap().unwrap();
        assert_eq!((after.fence, &after.steps), (before.fence, &before.steps));
        world.let_time_pass().await;
        let error = saga.start(&key(7), &order(7)).await.unwrap_err();
        assert!(matches!(error, SagaError::StepsChanged { .. }), "{error}");
        assert!(
            error.to_string().contains("[reserve, charge (outside)]"),
            "{error}"
        );
    }
    assert!(shop.log().is_empty());
    // The old build can.
    world.let_time_pass().await;
    let old = built(add(begin(&shop), "charge", true), &world);
    let _ = old.start(&key(7), &order(7)).await.unwrap();
    assert_eq!(shop.log(), ["charge"]);
}

async fn an_accepted_list_is_run_to_its_end<D: SagaDialect>(world: World<D>) {
    let shop = begun(&world).await;
    let new = add(add(begin(&shop), "check", true), "charge@2", true);
    let new = new.accepts(["reserve"]).accepts(["reserve", "charge"]);
    let saga = built(new, &world);
    let resumed = saga.worker().run_once().await.unwrap();
    assert!(resumed[0].outcome.is_ok(), "{:?}", resumed[0].outcome);
    // What its list does not have is not run for it.
    assert_eq!(shop.log(), ["charge@2"]);
    let results = saga.start(&key(7), &order(7)).await.unwrap();
    assert_eq!(results.get::<String>("charge").unwrap(), "reserved");
    let none = results.get::<String>("check").unwrap_err();
    assert_eq!(none.kind(), ErrorKind::UnknownStep);
    // A new one has them all.
    let _ = saga.start(&key(8), &order(8)).await.unwrap();
    assert_eq!(shop.log()[1..], ["reserve", "check", "charge@2"]);
    let status = saga.status(&key(8)).await.unwrap().unwrap();
    let names: Vec<_> = status.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["reserve", "check", "charge@2"]);
}

async fn an_ended_saga_is_answered_whatever_the_list<D: SagaDialect>(world: World<D>) {
    let shop = Shop::new(&world.pool);
    let old = built(add(begin(&shop), "charge", true), &world);
    let _ = old.start(&key(7), &order(7)).await.unwrap();
    let new = built(add(begin(&shop), "pay", true), &world);
    let results = new.start(&key(7), &order(7)).await.unwrap();
    assert_eq!(results.get::<String>("charge").unwrap(), "reserved");
    assert_eq!(shop.log().len(), 2);
}

async fn a_cancellation_under_another_list_fences_and_is_left_to_a_build_that_can<
    D: SagaDialect,
>(
    world: World<D>,
) {
    let shop = begun(&world).await;
    let new = built(add(begin(&shop), "pay", true), &world);
    let error = new.cancel(&key(7)).await.unwrap_err();
    assert!(matches!(error, SagaError::StepsChanged { .. }), "{error}");
    assert!(shop.log().is_empty());
    let status = new.status(&key(7)).await.unwrap().unwrap();
    assert_eq!(status.state, SagaState::Compensating);
    let old = built(add(begin(&shop), "charge", true), &world);
    let resumed = old.worker().run_once().await.unwrap();
    assert!(matches!(resumed[0].outcome, Err(SagaError::Compensated(_))));
    assert_eq!(shop.log(), ["undo reserved"]);
    let status = old.status(&key(7)).await.unwrap().unwrap();
    // Begun, never known to be done, and nothing undoes it.
    assert_eq!(
        states(&status),
        [StepState::Compensated, StepState::Started]
    );
}

async fn a_list_that_makes_no_sense_is_refused<D: SagaDialect>(world: World<D>) {
    let shop = Shop::new(&world.pool);
    let steps = || add(begin(&shop), "charge", true);
    let refused = |steps: Steps<D, Order, Shop<D>>| {
        let error = steps.build(&world.pool).unwrap_err();
        assert_eq!(
            (error.effect(), error.retry()),
            (Effect::None, Retry::Never)
        );
        error.to_string()
    };
    let none = Steps::<D, Order, Shop<D>>::named("none", shop.clone());
    assert!(refused(none).contains("at least one step"));
    let twice = refused(add(steps(), "charge@2", true));
    assert!(
        twice.contains("two steps have the name \"charge\""),
        "{twice}"
    );
    assert!(refused(add(steps(), "two words", true)).contains("not a name of a step"));
    let unknown = refused(steps().accepts(["reserve", "pay"]));
    assert!(
        unknown.contains("\"pay\", which is not declared"),
        "{unknown}"
    );
    let nameless = Steps::<D, Order, Shop<D>>::named("", shop.clone());
    assert!(refused(add(nameless, "a", true)).contains("name"));
    assert!(refused(steps().lease(Duration::ZERO)).contains("the lease of 0ns"));
    assert!(refused(steps().timeout(Duration::ZERO)).contains("time-out is zero"));
    let zero = StepOptions::new().timeout(Duration::ZERO);
    assert!(refused(steps().configure("charge", zero)).contains("time-out is zero"));
    let misspelt = refused(steps().configure("chrage", StepOptions::new()));
    assert!(misspelt.contains("\"chrage\" is configured"), "{misspelt}");
    assert_eq!(
        number(&world.pool, "SELECT COUNT(*) FROM idem_saga").await,
        0
    );
}
