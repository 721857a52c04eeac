//! A step that is declared otherwise under the same name: no effect is lost.

use idem_runtime::Effect;
use idem_runtime::steps::{
    Cause, Retries, Saga, SagaDialect, SagaError, SagaState, Step, StepError, StepState, StepTx,
    Steps, Undo,
};

use crate::shop::{Order, Shop, key, order, states};
use crate::world::{World, on_each};

on_each!(
    an_unknown_effect_stays_unknown_when_its_step_becomes_transactional
    a_transactional_step_becomes_an_outside_one
    an_effect_whose_compensation_is_no_longer_declared_is_not_lost
);

type Any<D> = Saga<D, Order, Shop<D>>;

fn reserve<D: SagaDialect>(shop: &Shop<D>) -> Steps<D, Order, Shop<D>> {
    Steps::named("order.place", shop.clone())
        .retries(Retries::default().at_once(1))
        .step(
            "reserve",
            |step: StepTx<D, Order, Shop<D>>| async move {
                step.context().mark("reserve");
                Ok(())
            },
            |step, ()| async move {
                step.context().mark("undo reserve");
                Ok(())
            },
        )
}

async fn outside_run<D: SagaDialect>(
    step: Step<Order, Shop<D>>,
    works: bool,
) -> Result<String, StepError> {
    step.context().mark("charge outside");
    match works {
        true => Ok("charged".to_owned()),
        false => Err(StepError::retry("no answer")),
    }
}

async fn outside_undo<D: SagaDialect>(
    step: Step<Order, Shop<D>>,
    told: Undo<String>,
) -> Result<(), StepError> {
    step.context().mark(&format!("undo outside {told:?}"));
    Ok(())
}

fn outside<D: SagaDialect>(shop: &Shop<D>, works: bool) -> Steps<D, Order, Shop<D>> {
    let run = move |step| outside_run(step, works);
    reserve(shop).outside("charge", run, outside_undo)
}

fn inside<D: SagaDialect>(shop: &Shop<D>, works: bool) -> Steps<D, Order, Shop<D>> {
    reserve(shop).step(
        "charge",
        move |step: StepTx<D, Order, Shop<D>>| async move {
            step.context().mark("charge inside");
            match works {
                true => Ok("charged".to_owned()),
                false => Err(StepError::retry("not now")),
            }
        },
        |step, was: String| async move {
            step.context().mark(&format!("undo inside {was}"));
            Ok(())
        },
    )
}

fn built<D: SagaDialect>(steps: Steps<D, Order, Shop<D>>, world: &World<D>) -> Any<D> {
    steps.build(&world.pool).unwrap()
}

#[track_caller]
fn assert_changed<T: std::fmt::Debug>(answer: Result<T, SagaError>) {
    match answer {
        Err(SagaError::StepsChanged { effect, .. }) => assert_eq!(effect, Effect::Unknown),
        other => panic!("{other:?}"),
    }
}

async fn an_unknown_effect_stays_unknown_when_its_step_becomes_transactional<D: SagaDialect>(
    world: World<D>,
) {
    let shop = Shop::new(&world.pool);
    for no in 1..=3 {
        let waits = built(outside(&shop, false), &world)
            .start(&key(no), &order(no))
            .await;
        assert!(matches!(waits, Err(SagaError::Waiting(_))), "{waits:?}");
    }
    // A build that does not accept the old list touches nothing, whatever it is asked for.
    let shop = Shop::new(&world.pool);
    let new = built(inside(&shop, true), &world);
    world.let_time_pass().await;
    for resumed in new.worker().run_once().await.unwrap() {
        assert_changed(resumed.outcome);
    }
    assert_changed(new.cancel(&key(1)).await);
    assert!(shop.log().is_empty());

    // One that accepts it does not run what may have happened, and does not forget it.
    let new = built(inside(&shop, true).accepts(["reserve", "charge"]), &world);
    world.let_time_pass().await;
    let forward = new.start(&key(2), &order(2)).await;
    let Err(SagaError::Stuck(left)) = &forward else {
        panic!("{forward:?}");
    };
    assert_eq!(
        (left.cause, left.effect),
        (Cause::EffectUnknown, Effect::Unknown)
    );
    for no in [1, 2] {
        let cancelled = new.cancel(&key(no)).await;
        let Err(SagaError::Stuck(left)) = &cancelled else {
            panic!("{cancelled:?}");
        };
        assert_eq!(
            (left.cause, left.step.as_deref()),
            (Cause::EffectUnknown, Some("charge"))
        );
        let status = new.status(&key(no)).await.unwrap().unwrap();
        assert_eq!(status.state, SagaState::Compensating);
    }
    assert!(shop.log().is_empty());
    // A person decides, or the old build does.
    assert!(
        new.resolve_undone(&key(1), "charge", "refunded by hand")
            .await
            .unwrap()
    );
    let Err(SagaError::Compensated(_)) = new.start(&key(1), &order(1)).await else {
        panic!("it is not compensated");
    };
    assert_eq!(shop.log(), ["undo reserve"]);
    let old = built(outside(&shop, true), &world);
    assert!(old.retry_stuck(&key(2)).await.unwrap());
    old.cancel(&key(2)).await.unwrap();
    assert_eq!(shop.log()[1..], ["undo outside Unknown", "undo reserve"]);
    let _ = old.start(&key(3), &order(3)).await.unwrap();
    assert_eq!(shop.times("charge inside"), 0);
}

async fn a_transactional_step_becomes_an_outside_one<D: SagaDialect>(world: World<D>) {
    let shop = Shop::new(&world.pool);
    let waits = built(inside(&shop, false), &world)
        .start(&key(7), &order(7))
        .await;
    assert!(matches!(waits, Err(SagaError::Waiting(_))), "{waits:?}");
    world.let_time_pass().await;
    let shop = Shop::new(&world.pool);
    assert_changed(
        built(outside(&shop, true), &world)
            .start(&key(7), &order(7))
            .await,
    );
    assert!(shop.log().is_empty());
    world.let_time_pass().await;
    // Nothing remains of a transaction that did not commit.
    let new = built(outside(&shop, true).accepts(["reserve", "charge"]), &world);
    let results = new.start(&key(7), &order(7)).await.unwrap();
    assert_eq!(results.get::<String>("charge").unwrap(), "charged");
    assert_eq!(shop.log(), ["charge outside"]);
}

async fn an_effect_whose_compensation_is_no_longer_declared_is_not_lost<D: SagaDialect>(
    world: World<D>,
) {
    for (no, works) in [(1, true), (2, false)] {
        let shop = Shop::new(&world.pool);
        let end = |steps: Steps<D, Order, Shop<D>>| {
            let end =
                |_: StepTx<D, Order, Shop<D>>| async { Err::<(), _>(StepError::retry("not now")) };
            steps.step_without_undo("end", end)
        };
        let old = built(end(outside(&shop, works)), &world);
        let waits = old.start(&key(no), &order(no)).await;
        assert!(matches!(waits, Err(SagaError::Waiting(_))), "{waits:?}");
        let run = move |step| outside_run(step, works);
        let new = built(
            end(reserve(&shop).outside_without_undo("charge", run)),
            &world,
        );
        let cancelled = new.cancel(&key(no)).await;
        let Err(SagaError::Stuck(left)) = &cancelled else {
            panic!("{cancelled:?}");
        };
        assert_eq!(left.cause, Cause::CompensationMissing);
        assert_eq!(shop.times("undo reserve"), 0, "it does not overtake");
        assert!(old.retry_stuck(&key(no)).await.unwrap());
        old.cancel(&key(no)).await.unwrap();
        let told = if works {
            "undo outside Done(\"charged\")"
        } else {
            "undo outside Unknown"
        };
        assert_eq!((shop.times(told), shop.times("undo reserve")), (1, 1));
        let status = old.status(&key(no)).await.unwrap().unwrap();
        assert_eq!(states(&status)[..2], [StepState::Compensated; 2]);
    }
}
