//! A step failed for good: what was done is undone, and nothing else.

use idem_runtime::Effect;
use idem_runtime::steps::{
    Retries, SagaDialect, SagaError, SagaState, Step, StepError, StepState, StepTx, Steps, Undo,
};

use crate::shop::{
    ALL_DONE, Do, Order, Shop, assert_all_undone, effects, key, order, saga, states,
};
use crate::world::{World, number, on_each};

on_each!(
    saga_01_a_failed_step_is_never_counted_as_done
    saga_01_a_failed_compensation_is_recorded_and_retried
    saga_02_a_compensation_after_a_restart_gets_the_recorded_result
    saga_05_a_step_that_refused_is_not_undone
    saga_05_a_step_with_an_unknown_outcome_is_undone_as_such
    saga_05_a_refusal_after_an_unknown_attempt_is_undone
    saga_05_the_other_side_is_asked_first
    saga_05_what_was_there_before_is_not_undone
    saga_05_what_a_question_finds_there_before_is_not_undone
    a_compensation_runs_once
    a_step_without_undo_is_left
);

use StepState::{Compensated, CompensationFailed, Done, Failed, Pending};

async fn saga_01_a_failed_step_is_never_counted_as_done<D: SagaDialect>(world: World<D>) {
    for (no, step) in (0_i64..).zip(crate::shop::STEPS) {
        for point in ["before", "after"] {
            let no = no * 10 + i64::from(point == "after");
            let shop = Shop::new(&world.pool);
            shop.at(&format!("{point}:{step}"), Do::Refuse, 1);
            let saga = saga(&shop);
            let error = saga.start(&key(no), &order(no)).await.unwrap_err();
            let SagaError::Compensated(failure) = &error else {
                panic!("{error}");
            };
            assert_eq!(failure.step.as_deref(), Some(step));
            assert_eq!(failure.error.as_deref(), Some("refused"));
            assert!(!failure.cancelled);
            assert_eq!(error.effect(), Effect::None);
            let status = saga.status(&key(no)).await.unwrap().unwrap();
            let at = crate::shop::STEPS.iter().position(|name| *name == step);
            let at = at.unwrap();
            let mut expected = [Pending; 4];
            expected[..at].fill(Compensated);
            expected[at] = Failed;
            assert_eq!(states(&status), expected);
            assert_eq!(status.state, SagaState::Compensated);
            assert_eq!(status.failure.as_ref(), Some(failure));
            let effects = effects(&world.pool, no).await;
            assert_eq!(effects[..at], vec![(1, 1); at], "{step}");
            // A repeat gets the same answer and runs nothing.
            let points = shop.log().len();
            let again = saga.start(&key(no), &order(no)).await.unwrap_err();
            assert_eq!(again.to_string(), error.to_string());
            assert_eq!(shop.log().len(), points);
        }
    }
}

async fn saga_01_a_failed_compensation_is_recorded_and_retried<D: SagaDialect>(world: World<D>) {
    let shop = Shop::new(&world.pool);
    shop.at("before:ship", Do::Refuse, 1)
        .at("undo-before:charge", Do::Retry, 2);
    let saga = saga(&shop);
    let error = saga.start(&key(7), &order(7)).await.unwrap_err();
    let SagaError::Waiting(left) = &error else {
        panic!("{error}");
    };
    assert!(left.compensation && left.again_in.is_some());
    let of = (left.step.as_deref(), left.attempts, left.error.as_str());
    assert_eq!(of, (Some("charge"), 2, "not now"));
    let status = saga.status(&key(7)).await.unwrap().unwrap();
    assert_eq!(status.state, SagaState::Compensating);
    // Backwards, and not past the one that failed.
    let expected = [Done, CompensationFailed, Compensated, Failed];
    assert_eq!(states(&status), expected);
    assert_eq!(status.steps[1].undo_attempts, 2);
    assert_eq!(status.steps[1].error.as_deref(), Some("not now"));
    assert_eq!(effects(&world.pool, 7).await[..2], [(1, 0), (1, 0)]);
    // Not due yet.
    assert!(saga.worker().run_once().await.unwrap().is_empty());
    world.let_time_pass().await;
    let resumed = saga.worker().run_once().await.unwrap();
    assert_eq!(resumed.len(), 1);
    assert!(matches!(resumed[0].outcome, Err(SagaError::Compensated(_))));
    let expected = [(1, 1), (1, 1), (1, 1), (0, 0)];
    assert_eq!(effects(&world.pool, 7).await, expected);
    let status = saga.status(&key(7)).await.unwrap().unwrap();
    assert_eq!(
        states(&status),
        [Compensated, Compensated, Compensated, Failed]
    );
}

async fn saga_02_a_compensation_after_a_restart_gets_the_recorded_result<D: SagaDialect>(
    world: World<D>,
) {
    let before = Shop::new(&world.pool);
    before.at("before:book", Do::Retry, 9);
    let error = saga(&before).start(&key(7), &order(7)).await.unwrap_err();
    assert!(matches!(error, SagaError::Waiting(_)), "{error}");
    let status = saga(&before).status(&key(7)).await.unwrap().unwrap();
    assert_eq!(states(&status), [Done, Done, Pending, Pending]);

    let after = Shop::new(&world.pool);
    after.at("before:book", Do::Refuse, 1);
    world.let_time_pass().await;
    let resumed = saga(&after).worker().run_once().await.unwrap();
    assert!(matches!(resumed[0].outcome, Err(SagaError::Compensated(_))));
    let log = after.log();
    let told: Vec<_> = log
        .iter()
        .filter(|entry| entry.starts_with("undo:"))
        .collect();
    // The results carry the mark of the shop that made them.
    let made = ["charge", "reserve"].map(|step| {
        let mark = before.nonce();
        format!("undo:{step}:{step}-7-{mark}")
    });
    assert_eq!(told, made.iter().collect::<Vec<_>>());
    assert_eq!(effects(&world.pool, 7).await[..2], [(1, 1), (1, 1)]);
}

async fn saga_05_a_step_that_refused_is_not_undone<D: SagaDialect>(world: World<D>) {
    let shop = Shop::new(&world.pool);
    shop.at("before:charge", Do::Refuse, 1);
    let error = saga(&shop).start(&key(7), &order(7)).await.unwrap_err();
    assert!(matches!(error, SagaError::Compensated(_)), "{error}");
    let expected = [(1, 1), (0, 0), (0, 0), (0, 0)];
    assert_eq!(effects(&world.pool, 7).await, expected);
    assert_eq!(shop.times("undo-before:charge"), 0);
    assert_eq!(shop.times("undo-before:reserve"), 1);
}

async fn saga_05_a_step_with_an_unknown_outcome_is_undone_as_such<D: SagaDialect>(world: World<D>) {
    for (no, point) in [(7, "before:charge"), (8, "after:charge")] {
        let shop = Shop::new(&world.pool);
        shop.at(point, Do::Unknown, 1);
        let saga = saga(&shop);
        let error = saga.start(&key(no), &order(no)).await.unwrap_err();
        assert!(matches!(error, SagaError::Compensated(_)), "{error}");
        assert_eq!(shop.times("undo:charge:unknown"), 1);
        assert_eq!(shop.times("undo-before:reserve"), 1);
        let effects = effects(&world.pool, no).await;
        assert_all_undone(&effects);
        assert_eq!(effects[1].1, 1);
        let status = saga.status(&key(no)).await.unwrap().unwrap();
        assert_eq!(
            states(&status),
            [Compensated, Compensated, Pending, Pending]
        );
    }
}

async fn saga_05_a_refusal_after_an_unknown_attempt_is_undone<D: SagaDialect>(world: World<D>) {
    let shop = Shop::new(&world.pool);
    let saga = Steps::named("second", shop.clone())
        .outside(
            "charge",
            |step: Step<Order, Shop<D>>| async move {
                if step.attempt() == 1 {
                    return Err::<String, _>(StepError::retry("time-out"));
                }
                Err(StepError::refused("not any more"))
            },
            |step: Step<Order, Shop<D>>, told| async move {
                assert_eq!(told, Undo::Unknown::<String>);
                step.context().mark("told unknown");
                Ok(())
            },
        )
        .retries(Retries::default().pauses(
            std::time::Duration::from_millis(1),
            std::time::Duration::from_millis(1),
        ))
        .build(&world.pool)
        .unwrap();
    let error = saga.start(&key(7), &order(7)).await.unwrap_err();
    assert!(matches!(error, SagaError::Compensated(_)), "{error}");
    assert_eq!(shop.times("told unknown"), 1);
}

/// What the other side says when it is asked.
#[derive(Clone, Copy, PartialEq)]
enum Says {
    Done,
    Nothing,
    NotNow,
}

async fn saga_05_the_other_side_is_asked_first<D: SagaDialect>(world: World<D>) {
    for (no, says) in [(1, Says::Done), (2, Says::Nothing), (3, Says::NotNow)] {
        let shop = Shop::new(&world.pool);
        let saga = Steps::named("asks", shop.clone())
            .outside_with_ask(
                "charge",
                |step: Step<Order, Shop<D>>| async move {
                    step.context().mark("run");
                    match step.attempt() {
                        1 => Err(StepError::retry("time-out")),
                        _ => Ok("run again".to_owned()),
                    }
                },
                move |step| async move {
                    step.context().mark("asked");
                    match says {
                        Says::Done => Ok(Some("found".to_owned())),
                        Says::Nothing => Ok(None),
                        Says::NotNow => Err(StepError::refused("do not ask")),
                    }
                },
                |step, told: Undo<String>| async move {
                    step.context().mark(&format!("{told:?}"));
                    Ok(())
                },
            )
            .step_without_undo("end", |step: StepTx<D, Order, Shop<D>>| async move {
                step.context().mark("end");
                Err::<(), _>(StepError::refused("no"))
            })
            .retries(Retries::default().in_all(3).pauses(
                std::time::Duration::from_millis(1),
                std::time::Duration::from_millis(1),
            ))
            .build(&world.pool)
            .unwrap();
        let error = saga.start(&key(no), &order(no)).await.unwrap_err();
        let log = shop.log();
        match says {
            Says::Done => assert_eq!(log, ["run", "asked", "end", "Done(\"found\")"]),
            Says::Nothing => {
                assert_eq!(log, ["run", "asked", "run", "end", "Done(\"run again\")"]);
            }
            Says::NotNow => {
                // That a question is refused decides nothing.
                assert!(matches!(error, SagaError::Stuck(_)), "{error}");
                assert_eq!(log, ["run", "asked", "asked"]);
                let cancelled = saga.cancel(&key(no)).await.unwrap_err();
                assert!(matches!(cancelled, SagaError::Stuck(_)), "{cancelled}");
            }
        }
    }
}

async fn saga_05_what_was_there_before_is_not_undone<D: SagaDialect>(world: World<D>) {
    let shop = Shop::new(&world.pool);
    let saga = Steps::named("finds", shop.clone())
        .outside(
            "account",
            |step: Step<Order, Shop<D>>| async move {
                step.skip_compensation();
                Ok("an older one".to_owned())
            },
            |step, _: Undo<String>| async move {
                step.context().mark("closed");
                Ok(())
            },
        )
        .step(
            "card",
            |step: StepTx<D, Order, Shop<D>>| async move {
                step.skip_compensation();
                Ok(step.result::<String>("account")?)
            },
            |step, _: String| async move {
                step.context().mark("blocked");
                Ok(())
            },
        )
        .step(
            "credit",
            |_: StepTx<D, Order, Shop<D>>| async { Ok(()) },
            |step, ()| async move {
                step.context().mark("taken back");
                Ok(())
            },
        )
        .step_without_undo("end", |_: StepTx<D, Order, Shop<D>>| async {
            Err::<(), _>(StepError::refused("no"))
        })
        .build(&world.pool)
        .unwrap();
    let error = saga.start(&key(7), &order(7)).await.unwrap_err();
    assert!(matches!(error, SagaError::Compensated(_)), "{error}");
    assert_eq!(shop.log(), ["taken back"]);
    let status = saga.status(&key(7)).await.unwrap().unwrap();
    assert_eq!(states(&status), [Done, Done, Compensated, Failed]);
    let left: Vec<_> = status.steps.iter().map(|step| step.left_alone).collect();
    assert_eq!(left, [true, true, false, false]);
}

/// The one who is asked knows whose effect it is: also where the step itself never said so.
async fn saga_05_what_a_question_finds_there_before_is_not_undone<D: SagaDialect>(world: World<D>) {
    for (no, backwards) in [(1, false), (2, true)] {
        let shop = Shop::new(&world.pool);
        let saga = Steps::named("finds.late", shop.clone())
            .outside_with_ask(
                "account",
                move |step: Step<Order, Shop<D>>| async move {
                    step.context().mark("run");
                    Err::<String, _>(match backwards {
                        false => StepError::retry("no answer"),
                        true => StepError::unknown("no answer"),
                    })
                },
                |step| async move {
                    step.skip_compensation();
                    Ok(Some("an older one".to_owned()))
                },
                |step, _: Undo<String>| async move {
                    step.context().mark("closed");
                    Ok(())
                },
            )
            .step_without_undo("end", |step: StepTx<D, Order, Shop<D>>| async move {
                step.context().mark(&step.result::<String>("account")?);
                Err::<(), _>(StepError::refused("no"))
            })
            .retries(Retries::default().pauses(
                std::time::Duration::from_millis(1),
                std::time::Duration::from_millis(1),
            ))
            .build(&world.pool)
            .unwrap();
        let error = saga.start(&key(no), &order(no)).await.unwrap_err();
        assert!(matches!(error, SagaError::Compensated(_)), "{error}");
        let expected: &[_] = if backwards {
            &["run"]
        } else {
            &["run", "an older one"]
        };
        assert_eq!(shop.log(), expected);
        let status = saga.status(&key(no)).await.unwrap().unwrap();
        assert!(status.steps[0].left_alone);
        assert_eq!(status.steps[0].state, Done);
    }
}

async fn a_compensation_runs_once<D: SagaDialect>(world: World<D>) {
    for (no, point) in (1..).zip(["undo-after:book", "undo-after:charge", "undo-after:reserve"]) {
        let shop = Shop::new(&world.pool);
        shop.at("before:ship", Do::Refuse, 1)
            .at(point, Do::Retry, 1);
        let error = saga(&shop).start(&key(no), &order(no)).await.unwrap_err();
        assert!(matches!(error, SagaError::Compensated(_)), "{error}");
        let expected = [(1, 1), (1, 1), (1, 1), (0, 0)];
        assert_eq!(effects(&world.pool, no).await, expected, "{point}");
        assert_eq!(shop.times(point), 2, "it was tried again");
    }
    let keys = "SELECT COUNT(*) FROM other_side WHERE undone = 1 AND calls = 2";
    assert_eq!(number(&world.pool, keys).await, 1, "with the same key");
}

async fn a_step_without_undo_is_left<D: SagaDialect>(world: World<D>) {
    let shop = Shop::new(&world.pool);
    let saga = Steps::named("mixed", shop.clone())
        .outside_without_undo("mail", |step: Step<Order, Shop<D>>| async move {
            step.context().mark("mail");
            Ok(())
        })
        .step_without_undo("end", |_: StepTx<D, Order, Shop<D>>| async {
            Err::<(), _>(StepError::refused("no"))
        })
        .build(&world.pool)
        .unwrap();
    let error = saga.start(&key(7), &order(7)).await.unwrap_err();
    assert!(matches!(error, SagaError::Compensated(_)), "{error}");
    let status = saga.status(&key(7)).await.unwrap().unwrap();
    assert_eq!(states(&status), [Done, Failed]);
    assert_ne!(effects(&world.pool, 7).await, ALL_DONE);
}
