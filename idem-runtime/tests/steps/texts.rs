//! What errors say is so.

use idem_runtime::steps::{
    Cause, SagaDialect, SagaError, SagaFilter, SagaTable, Step, StepError, StepTx, Steps,
};
use idem_runtime::{Effect, Retry};

use crate::world::{World, number, on_each};

on_each!(
    an_effect_whose_result_cannot_be_recorded_is_unknown_and_nothing_else
    an_input_that_cannot_be_recorded_is_called_so
    an_input_that_no_longer_decodes_is_shown_and_waits_for_a_build_that_can
    where_nothing_remains_no_effect_is_claimed
);

async fn an_effect_whose_result_cannot_be_recorded_is_unknown_and_nothing_else<D: SagaDialect>(
    world: World<D>,
) {
    let saga = Steps::named("nan", ())
        .outside_without_undo("charge", |_: Step<u64>| async { Ok(f64::NAN) })
        .build(&world.pool)
        .unwrap();
    let error = saga.start("a", &1).await.unwrap_err();
    let SagaError::Stuck(left) = &error else {
        panic!("{error}");
    };
    assert_eq!(
        (left.cause, error.effect()),
        (Cause::ResultUnusable, Effect::Unknown)
    );
    let text = error.to_string();
    assert_eq!(text.matches("effect:").count(), 1, "{text}");
    assert!(text.contains("(effect: unknown;"), "{text}");
    let status = saga.status("a").await.unwrap().unwrap();
    for kept in [&status.error, &status.steps[0].error] {
        let kept = kept.as_deref().unwrap();
        assert!(
            !kept.contains("effect:") && kept.contains("stored"),
            "{kept}"
        );
    }
}

async fn an_input_that_cannot_be_recorded_is_called_so<D: SagaDialect>(world: World<D>) {
    let saga = Steps::named("nan", ())
        .step_without_undo("a", |_: StepTx<D, f64>| async { Ok(()) })
        .build(&world.pool)
        .unwrap();
    let error = saga.start("a", &f64::NAN).await.unwrap_err();
    assert!(
        matches!(error, SagaError::InputNotRecordable { .. }),
        "{error}"
    );
    assert_eq!(
        (error.effect(), error.retry()),
        (Effect::None, Retry::Never)
    );
    let text = error.to_string();
    assert!(
        text.contains("input") && !text.contains("outcome"),
        "{text}"
    );
    assert_eq!(
        number(&world.pool, "SELECT COUNT(*) FROM idem_saga").await,
        0
    );
}

async fn an_input_that_no_longer_decodes_is_shown_and_waits_for_a_build_that_can<D: SagaDialect>(
    world: World<D>,
) {
    // Once nothing remains of the step, once that is unknown.
    for (key, effect) in [("a", Effect::None), ("b", Effect::Unknown)] {
        let outside = key == "b";
        let old = |works: bool| {
            let done = move || match works {
                true => Ok(()),
                false => Err(StepError::retry("not now")),
            };
            let steps = Steps::named(format!("typed.{key}"), ());
            let steps = match outside {
                true => {
                    steps.outside_without_undo("one", move |_: Step<String>| async move { done() })
                }
                false => steps
                    .step_without_undo("one", move |_: StepTx<D, String>| async move { done() }),
            };
            steps.build(&world.pool).unwrap()
        };
        let error = old(false).start(key, &"text".to_owned()).await.unwrap_err();
        assert!(matches!(error, SagaError::Waiting(_)), "{error}");
        assert_eq!(error.effect(), effect);
        let steps = Steps::named(format!("typed.{key}"), ());
        let new = match outside {
            true => steps.outside_without_undo("one", |_: Step<u64>| async { Ok(()) }),
            false => steps.step_without_undo("one", |_: StepTx<D, u64>| async { Ok(()) }),
        };
        let new = new.build(&world.pool).unwrap();
        world.let_time_pass().await;
        let resumed = new.worker().run_once().await.unwrap();
        let error = resumed[0].outcome.as_ref().unwrap_err();
        let cancelled = new.cancel(resumed[0].id).await;
        let again = new.cancel(key).await;
        for error in [error, &cancelled.unwrap_err(), &again.unwrap_err()] {
            let SagaError::Waiting(left) = error else {
                panic!("{error}");
            };
            assert_eq!(
                (left.cause, error.effect()),
                (Cause::InputUndecodable, effect)
            );
            let text = error.to_string();
            assert!(text.contains("its stored input does not decode"), "{text}");
            assert!(!text.contains("attempt"), "{text}");
            assert_eq!(text.matches("effect:").count(), 1, "{text}");
        }
        let status = new.status(key).await.unwrap().unwrap();
        assert_eq!(status.cause, Some(Cause::InputUndecodable));
        assert!(status.error.unwrap().contains("does not decode"));
        let filter = SagaFilter::new()
            .cause(Cause::InputUndecodable)
            .name(format!("typed.{key}"));
        let found = SagaTable::default()
            .count(&world.pool, &filter)
            .await
            .unwrap();
        assert_eq!(found, 1);
        world.let_time_pass().await;
        let resumed = old(true).worker().run_once().await.unwrap();
        let undone = &resumed[0].outcome;
        assert!(
            matches!(undone, Err(SagaError::Compensated(_))),
            "{undone:?}"
        );
    }
}

async fn where_nothing_remains_no_effect_is_claimed<D: SagaDialect>(world: World<D>) {
    let saga = Steps::named("two", ())
        .step_without_undo("one", |step: StepTx<D, u64>| async move {
            match step.input() {
                1 => Err(StepError::retry("not now")),
                _ => Ok(()),
            }
        })
        .step_without_undo("two", |_: StepTx<D, u64>| async {
            Err::<(), _>(StepError::retry("not now"))
        })
        .build(&world.pool)
        .unwrap();
    for (input, effect) in [(1, Effect::None), (2, Effect::Unknown)] {
        for _ in 0..2 {
            let error = saga
                .start(&format!("key {input}"), &input)
                .await
                .unwrap_err();
            assert!(matches!(error, SagaError::Waiting(_)), "{error}");
            assert_eq!(error.effect(), effect);
            let said = if effect == Effect::None {
                "(effect: none;"
            } else {
                "(effect: unknown;"
            };
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
